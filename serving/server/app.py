"""The ASGI app: the routes of all dialects, and the middleware around them."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from serving.errors import CancelledError, OverloadedError, RequestError, ServingError
from serving.server.access.gate import Gate, Gatekeeper, KeyRule
from serving.server.api.dialect import Dialect, DialectRoute, EndpointsT
from serving.server.api.refusal import Refusal
from serving.server.dialects import DIALECTS
from serving.server.http.access_log import CONTEXT, REQUEST_ID, Access, LastResort
from serving.server.http.body import ByBody, TimedBody
from serving.server.http.metrics import HttpMetrics
from serving.server.http.page import page_routes
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.openapi import document
from serving.server.work.backend import Backend
from serving.server.work.batches.desk import Batches
from serving.server.work.batches.running import Answering
from serving.server.work.documents.desk import Documents
from serving.server.work.imports import Imports
from serving.server.work.stored.store import open_store
from serving.server.work.translating.jobs import Jobs

if TYPE_CHECKING:
    from serving.store.store import Store


logger = logging.getLogger(__name__)


def create_app(
    registry: Registry, settings: Settings, dialects: Sequence[Dialect[Any]] = DIALECTS
) -> Starlette:
    """The app over a registry, which the caller starts and closes.

    Raises SettingsError if the API keys or the store are unusable, StoreUnavailableError if the
    store does not respond.
    """
    metrics = HttpMetrics()
    describe = functools.cache(functools.partial(document, dialects, settings.root_path))
    store = open_store(settings)
    gatekeeper = _gatekeeper(settings, store)
    documents = Documents(Jobs(registry, settings, gatekeeper), registry, settings, store)
    refuse = Refusal(dialects)
    answering: dict[str, Answering] = {}
    batches = Batches(store, settings, gatekeeper, answering, refuse)
    imports = Imports(registry, settings)
    backend = Backend(
        registry, settings, gatekeeper, metrics, documents, batches, imports, describe, store
    )
    served: list[tuple[Route | Mount, KeyRule]] = [
        found for dialect in dialects for found in _served(dialect, backend, answering)
    ]
    served += [(route, KeyRule.NONE) for route in page_routes()]
    app = Starlette(
        routes=_found_by_path([route for route, _ in served]),
        middleware=[
            Middleware(Access, metrics=metrics, prefix=settings.root_path),
            *_cors(settings.cors_origins),
            Middleware(LastResort, refuse=refuse),
            Middleware(
                Gate,
                gatekeeper=gatekeeper,
                schemes=("bearer", *(s for dialect in dialects for s in dialect.key_schemes)),
                rules={route.path: rule for route, rule in served if _is_fixed(route)},
                others=[(route.path_regex, rule) for route, rule in served if not _is_fixed(route)],
                refuse=refuse,
            ),
            Middleware(TimedBody, timeout_s=settings.client_timeout_s),
            Middleware(ByBody, shared=_shared(dialects), max_bytes=settings.max_body_bytes),
        ],
        exception_handlers={
            ServingError: functools.partial(_refused, refuse),
            HTTPException: functools.partial(_no_route, refuse),
        },
        lifespan=_lifespan,
    )
    app.state.backend = backend
    # A redirect would turn some clients' POST into a GET.
    app.router.redirect_slashes = False
    return app


def _gatekeeper(settings: Settings, store: Store | None) -> Gatekeeper:
    """The gatekeeper by the settings and the store; closes the store if that fails."""
    if store is None:
        return Gatekeeper(settings)
    # Imported here, because they are useless without a store.
    from serving.server.access.accounts import Accounts
    from serving.server.access.usage import UsageMeter

    try:
        meter = UsageMeter(store.usage)
        required = bool(settings.admin_key.get_secret_value()) or store.keys.any()
        accounts = Accounts(store, meter)
        gatekeeper = Gatekeeper(settings, accounts, meter, store.rates, required=required)
        for owner in ("", *gatekeeper.keys.owners):
            meter.know(owner)
    except BaseException:
        store.close()
        raise
    return gatekeeper


def _served(
    dialect: Dialect[EndpointsT], backend: Backend, answering: dict[str, Answering]
) -> Iterator[tuple[Route, KeyRule]]:
    """The routes of a dialect for Starlette, and where each looks for its key. Records the
    endpoints that batches may use."""
    endpoints = dialect.endpoints(backend)
    for route in dialect.routes:
        if route.batch:
            answering[route.path] = functools.partial(route.endpoint, endpoints)
    by_path: dict[str, dict[str, DialectRoute[EndpointsT]]] = {}
    for route in dialect.routes:
        by_path.setdefault(route.path, {}).update(dict.fromkeys(route.methods, route))
    for path, routes in by_path.items():
        yield _starlette_route(path, routes, endpoints), next(iter(routes.values())).key


class FixedPaths(BaseRoute):
    """Routes whose paths have no parameters. The route of a path is looked up, where Starlette
    would try the pattern of one route after another."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._by_path = {route.path: route for route in routes}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        route = self._by_path.get(scope["path"]) if scope["type"] == "http" else None
        if route is None:
            return Match.NONE, {}
        match, found = route.matches(scope)
        return match, {**found, "route": route}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)


def _is_fixed(route: Route | Mount) -> TypeGuard[Route]:
    """Whether the path of a route has no parameters."""
    return isinstance(route, Route) and not route.param_convertors


def _found_by_path(routes: Sequence[Route | Mount]) -> list[BaseRoute]:
    """The same routes for Starlette; those with fixed paths come first."""
    fixed = FixedPaths([route for route in routes if _is_fixed(route)])
    return [fixed, *(route for route in routes if not _is_fixed(route))]


def _starlette_route(
    path: str, routes: Mapping[str, DialectRoute[EndpointsT]], endpoints: EndpointsT
) -> Route:
    """The routes of a path, by method, for Starlette: it passes the context of the request to the
    endpoint."""

    async def handle(request: Request) -> Response:
        # Starlette answers HEAD as GET, without the body.
        route = routes["GET" if request.method == "HEAD" else request.method]
        return await route.endpoint(endpoints, request, request.scope[CONTEXT])

    return Route(path, handle, methods=list(routes))


def _shared(dialects: Sequence[Dialect[Any]]) -> dict[str, dict[str, frozenset[str]]]:
    """Paths with several routes: the alternatives, each with the fields that identify it."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for route in (route for dialect in dialects for route in dialect.routes):
        for path, fields in route.shares.items():
            found.setdefault(path, {})[route.path] = fields
    return found


def _cors(origins: str) -> list[Middleware]:
    """The CORS middleware, or None if no other origins are allowed. It is outside the gate, so that
    a page can read refusals too."""
    allowed = [origin for origin in re.split(r"[\s,]+", origins) if origin]
    if not allowed:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            # Any page may then call a server in the reader's own network.
            allow_private_network="*" in allowed,
            expose_headers=[REQUEST_ID, "Retry-After"],
        )
    ]


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Resume batches when the server starts, and close the store when it stops."""
    app.state.backend.batches.start()
    yield
    await app.state.backend.batches.close()
    await run_in_threadpool(app.state.backend.close)


async def _refused(refuse: Refusal, request: Request, error: Exception) -> Response:
    """The response to an error of ours that an endpoint raised."""
    assert isinstance(error, ServingError)
    extra = {"request_id": request.scope[CONTEXT].request_id}
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OverloadedError):
        logger.warning("%s: %s", error.code, error, extra=extra)
    elif isinstance(error, CancelledError):
        logger.info("%s", error, extra=extra)
    return refuse(request.scope, error)


async def _no_route(refuse: Refusal, request: Request, error: Exception) -> Response:
    """The response if there is no such route, or none for this method."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    refused = RequestError(f"{phrase}: {request.method} {request.url.path}; see /openapi.json")
    refused.status, refused.code = error.status_code, phrase.lower().replace(" ", "_")
    response = refuse(request.scope, refused)
    response.headers.update(error.headers or {})
    return response
