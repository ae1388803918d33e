"""The ASGI app with every public route; every error is JSON in its dialect's shape."""

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
from serving.dialects.openai import OpenAIDialect, openai_error
from serving.errors import CancelledError, OverloadedError, RequestError, ServingError
from serving.registry import Registry
from serving.schemas import Error
from serving.settings import Settings

RETRY_AFTER_S = 1

_WEB = Path(__file__).parent / "web"
_MAX_MESSAGE = 500  # an error message may quote the request
_OPENAI_PATHS = ("/v1/", "/tokenizer_info", "/tokenize", "/detokenize")
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
            *OpenAIDialect(registry, settings).routes,
            Route("/", _page),
            Mount("/web", StaticFiles(directory=_WEB)),
        ],
        middleware=[Middleware(_LastResort)],
        exception_handlers={ServingError: _refused, HTTPException: _no_route},
    )
    # A redirect would turn some clients' POST into a GET.
    app.router.redirect_slashes = False
    return app


def error_response(path: str, error: ServingError) -> Response:
    """An error in the dialect of its path."""
    message = str(error)
    if len(message) > _MAX_MESSAGE:
        error.args = (message[:_MAX_MESSAGE] + " ...",)
    if path.startswith(_OPENAI_PATHS):
        body = openai_error(error).model_dump_json()
    else:
        body = Error(error=str(error), code=error.code).model_dump_json()
    return Response(body, status_code=error.status, media_type=JSON)


async def _page(_: Request) -> Response:
    return FileResponse(_WEB / "index.html", headers=_PAGE_HEADERS)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OverloadedError):
        logger.warning("%s: %s", error.code, error)
    elif isinstance(error, CancelledError):
        logger.info("%s", error)
    response = error_response(request.url.path, error)
    if isinstance(error, OverloadedError):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    refused = RequestError(f"{phrase}: {request.method} {request.url.path}; see /openapi.json")
    refused.status, refused.code = error.status_code, phrase.lower().replace(" ", "_")
    response = error_response(request.url.path, refused)
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
                error = ServingError("the server failed; its log says why")
                response = error_response(scope["path"], error)
                await response(scope, receive, send)
