"""The ASGI app with every public route; every error is JSON in its dialect's shape."""

from __future__ import annotations

import logging
import math
import re
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import CancelledError, OverloadedError, RequestError, ServingError
from serving.server.access_log import REQUEST_ID, Access, LastResort
from serving.server.dialects.deepl.routes import DeepLDialect, deepl_error
from serving.server.dialects.deepl.wire import DEEPL_STATUSES
from serving.server.dialects.libretranslate.routes import LibreTranslateDialect
from serving.server.dialects.native.routes import NativeDialect
from serving.server.dialects.native.wire import Error
from serving.server.dialects.openai.routes import OpenAIDialect, openai_error
from serving.server.gate import Gate
from serving.server.keys import Keys
from serving.server.page import page_routes
from serving.server.record import note_error
from serving.server.registry import Registry
from serving.server.settings import Settings
from serving.server.slow_clients import TimedBody
from serving.server.wire import JSON

_MAX_MESSAGE = 500  # an error message may quote the request
_DEEPL_PATHS = ("/v2/",)
_OPENAI_PATHS = ("/v1/", "/tokenizer_info", "/tokenize", "/detokenize")

logger = logging.getLogger(__name__)


def create_app(registry: Registry, settings: Settings) -> Starlette:
    """The app over a registry, which is started and closed by the caller.

    Raises SettingsError where the API keys cannot be used.
    """
    keys = Keys(settings)
    app = Starlette(
        routes=[
            *NativeDialect(registry, settings).routes,
            *LibreTranslateDialect(registry, settings, keys).routes,
            *DeepLDialect(registry, settings).routes,
            *OpenAIDialect(registry, settings).routes,
            *page_routes(),
        ],
        middleware=[
            Middleware(Access, metrics=registry.metrics),
            *_cors(settings.cors_origins),
            Middleware(LastResort, refuse=refusal),
            Middleware(Gate, settings=settings, keys=keys, refuse=refusal),
            Middleware(TimedBody, timeout_s=settings.client_timeout_s),
        ],
        exception_handlers={ServingError: _refused, HTTPException: _no_route},
    )
    # A redirect would turn some clients' POST into a GET.
    app.router.redirect_slashes = False
    return app


def error_response(path: str, error: ServingError) -> Response:
    """An error in the dialect of its path."""
    message, status = str(error), error.status
    if len(message) > _MAX_MESSAGE:
        error.args = (message[:_MAX_MESSAGE] + " ...",)
    if path.startswith(_OPENAI_PATHS):
        body = openai_error(error).model_dump_json()
    elif path.startswith(_DEEPL_PATHS):
        body = deepl_error(error).model_dump_json()
        status = DEEPL_STATUSES.get(status, status)
    else:
        body = Error(error=str(error), code=error.code).model_dump_json()
    return Response(body, status_code=status, media_type=JSON)


def refusal(path: str, error: ServingError) -> Response:
    """`error_response`, noted for the log line and the metrics, with the headers that belong to
    it."""
    note_error(error.code)
    response = error_response(path, error)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _cors(origins: str) -> list[Middleware]:
    """Around all else, so that a page can read refusals too."""
    allowed = [origin for origin in re.split(r"[\s,]+", origins) if origin]
    if not allowed:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[REQUEST_ID, "Retry-After"],
        )
    ]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OverloadedError):
        logger.warning("%s: %s", error.code, error)
    elif isinstance(error, CancelledError):
        logger.info("%s", error)
    return refusal(request.url.path, error)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    refused = RequestError(f"{phrase}: {request.method} {request.url.path}; see /openapi.json")
    refused.status, refused.code = error.status_code, phrase.lower().replace(" ", "_")
    response = refusal(request.url.path, refused)
    response.headers.update(error.headers or {})
    return response
