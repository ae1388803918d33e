"""A dialect's description: its routes with their requests and answers, and the shape of its errors.
Open routes, error shapes and the OpenAPI document follow from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import ServingError
from serving.server.access.gate import KeyRule
from serving.server.http.access_log import RequestContext
from serving.server.http.wire import Error, error_response
from serving.server.work.backend import Backend

EndpointsT = TypeVar("EndpointsT")

API_VERSION = "0.1.0"
"""The version of the HTTP interface of all dialects."""

WORK = (400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
"""Error statuses of a route that decodes."""
QUICK = (400, 401, 404, 408, 413, 415, 429, 503)
"""Error statuses of a route that reads a body and decodes nothing."""


@dataclass(frozen=True)
class DialectRoute(Generic[EndpointsT]):
    """A route: its path, its endpoint, the place of its key, and its description."""

    path: str
    """A template in Starlette's syntax: `/v1/models/{model}`."""
    endpoint: Callable[[EndpointsT, Request, RequestContext], Awaitable[Response]]
    """A method of the dialect's endpoints that answers a request. It raises ServingError, which the
    app renders in the dialect's shape."""
    name: str
    """The operationId. If a route has several methods, each appends its own name."""
    summary: str
    answer: type[Any]
    """The type of the answer: a body, `list[Body]`, `dict` for any object, `str` for plain text,
    `bytes` for a file, or `NoneType` for nothing."""
    methods: tuple[str, ...] = ("GET",)
    """The methods that share this description. Other methods of the path are separate routes, whose
    keys are looked for in the same place."""
    status: int = 200
    """The status of an answer without an error."""
    request: type[BaseModel] | None = None
    """The type of the JSON body."""
    form: tuple[str, ...] = ()
    """Fields of the request that may also come as a form; empty if no form is accepted."""
    upload: tuple[str, ...] | None = None
    """Fields of a multipart form beside its file, which is in the field `file`; empty if no file is
    accepted."""
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Query parameters with their allowed values; an empty list allows any value."""
    events: str = ""
    """The type of the data of server-sent events, if the answer may be a stream."""
    errors: tuple[int, ...] = ()
    """The statuses of its errors."""
    key: KeyRule = KeyRule.HEAD
    among_others: bool = False
    """Whether the path lies below that of another dialect, which keeps its own error shape
    there."""
    batch: bool = False
    """Whether lines of a batch may use this route."""
    shares: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Paths shared with other dialects, with the fields that identify requests of this one. A JSON
    POST with all of these fields is answered here. The key of such a path may be in the body; the
    endpoint checks it."""

    @property
    def error_path(self) -> str:
        """The prefix of the paths that use this dialect's error shape."""
        first, slash, _ = self.path.removeprefix("/").partition("/")
        return self.path if self.among_others else f"/{first}{slash}"


@dataclass(frozen=True)
class Dialect(Generic[EndpointsT]):
    """An API that the server speaks; `serving.server.dialects.DIALECTS` lists them."""

    endpoints: Callable[[Backend], EndpointsT]
    """Creates the object whose methods are the endpoints, once per app."""
    routes: tuple[DialectRoute[EndpointsT], ...]
    """The routes in the order of the OpenAPI document."""
    error: type[BaseModel] = Error
    """The type of an error body."""
    render_error: Callable[[ServingError], Response] = error_response
    """Renders the answer to a failed request."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Meanings of statuses that differ from `REASONS` in this dialect."""
    key_schemes: tuple[str, ...] = ()
    """Lower-case schemes of the Authorization header that carry a key, besides Bearer."""

    @property
    def error_paths(self) -> tuple[str, ...]:
        """Prefixes of the paths that use this dialect's error shape, whether or not a route exists
        there: `/v1/` if a route is below it, `/embed` if that is a route itself."""
        return tuple(dict.fromkeys(route.error_path for route in self.routes))
