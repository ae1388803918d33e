"""What a dialect is to the rest of the server: its routes, the look of its errors, and its part of
the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import ServingError
from serving.server.api.description import Description
from serving.server.http.access_log import RequestContext
from serving.server.http.gate import KeyRule
from serving.server.http.wire import error_response
from serving.server.work.backend import Backend

Endpoint = Callable[[Request, RequestContext], Awaitable[Response]]
"""Answers a request; raises ServingError, which the app renders in the dialect's shape."""


@dataclass(frozen=True)
class DialectRoute:
    """One path, who answers there, and where its key is looked for."""

    path: str
    """A template, as Starlette reads it: `/v1/models/{model}`."""
    endpoint: Endpoint
    methods: tuple[str, ...] = ("GET",)
    key: KeyRule = KeyRule.HEAD


@dataclass(frozen=True)
class Dialect:
    """One API that is spoken; `serving.server.dialects.DIALECTS` lists them."""

    routes: Callable[[Backend], Sequence[DialectRoute]]
    """Makes the routes, whose endpoints work with what the backend holds."""
    describe: Callable[[], Description]
    """Its part of the OpenAPI document."""
    error_paths: tuple[str, ...] = ()
    """Beginnings of the paths whose errors look as `render_error` says, whether there is such a
    route or not; an error of any other path looks as the native dialect's."""
    render_error: Callable[[ServingError], Response] = error_response
    """The answer that tells of an error."""
