"""The ASGI app with every public route; every error is JSON `{"error", "code"}`."""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.body import JSON
from serving.dialects.native import NativeDialect
from serving.errors import CancelledError, OverloadedError, ServingError
from serving.registry import Registry
from serving.schemas import Error
from serving.settings import Settings

RETRY_AFTER_S = 1

_WEB = Path(__file__).parent / "web"
_MAX_MESSAGE = 500  # an error message may quote the request
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

logger = logging.getLogger(__name__)


def create_app(registry: Registry, settings: Settings) -> Starlette:
    """The app over a registry, which is started and closed by the caller."""
    app = Starlette(
        routes=[
            *NativeDialect(registry, settings).routes,
            Route("/", _page),
            Mount("/web", StaticFiles(directory=_WEB)),
        ],
        middleware=[Middleware(_LastResort)],
        exception_handlers={ServingError: _refused, HTTPException: _no_route},
    )
    # A redirect would turn some clients' POST into a GET.
    app.router.redirect_slashes = False
    return app


def error_response(status: int, message: str, code: str) -> Response:
    """An error in the native dialect."""
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + " ..."
    body = Error(error=message, code=code).model_dump_json()
    return Response(body, status_code=status, media_type=JSON)


async def _page(_: Request) -> Response:
    return FileResponse(_WEB / "index.html", headers=_PAGE_HEADERS)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OverloadedError):
        logger.warning("%s: %s", error.code, error)
    elif isinstance(error, CancelledError):
        logger.info("%s", error)
    response = error_response(error.status, str(error), error.code)
    if isinstance(error, OverloadedError):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    response = error_response(
        error.status_code,
        f"{phrase}: {request.method} {request.url.path}; see /openapi.json",
        phrase.lower().replace(" ", "_"),
    )
    response.headers.update(error.headers or {})
    return response


class _LastResort:
    """Answers 500 where anything unforeseen is raised.

    Starlette's own handler raises the error again, and BentoML sends no answer at all for an error
    that leaves the app before its response has begun.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, watch)
        except Exception:
            logger.exception("unforeseen error in %s %r", scope["method"], scope["path"])
            if not begun:
                response = error_response(500, "the server failed; its log says why", "internal")
                await response(scope, receive, send)
