"""The description of a dialect: its routes with their requests and answers, and the shape of its
errors. Open routes, error shapes and the OpenAPI document follow from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import ServingError
from serving.server.http.access_log import RequestContext
from serving.server.http.gate import KeyRule
from serving.server.http.wire import Error, error_response
from serving.server.work.backend import Backend

EndpointsT = TypeVar("EndpointsT")

API_VERSION = "0.1.0"
"""Of the routes of all dialects together."""

WORK = (400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that decodes."""
QUICK = (400, 401, 404, 408, 413, 415, 429, 503)
"""Statuses of the errors of a route that reads a body and decodes nothing."""


@dataclass(frozen=True)
class DialectRoute(Generic[EndpointsT]):
    """One path, who answers there, where its key is looked for, and how it is described."""

    path: str
    """A template, as Starlette reads it: `/v1/models/{model}`."""
    endpoint: Callable[[EndpointsT, Request, RequestContext], Awaitable[Response]]
    """A method of the dialect's endpoints that answers a request; raises ServingError, which the
    app renders in the dialect's shape."""
    name: str
    """The operationId; of several methods each has its own name behind it."""
    summary: str
    answer: type[Any]
    """What is answered: a body, `list[Body]`, `dict` for any object, `str` for plain text,
    `bytes` for a file, or `NoneType` for nothing."""
    methods: tuple[str, ...] = ("GET",)
    """Those that are answered alike; others of the same path are routes of their own, whose keys
    are looked for in the same place."""
    status: int = 200
    """Of an answer without an error."""
    request: type[BaseModel] | None = None
    """The body that is read, as JSON."""
    form: tuple[str, ...] = ()
    """Fields of the request that may come as a form, too; none where no form is read."""
    upload: tuple[str, ...] | None = None
    """Fields of a multipart form that stand beside its file, which is in the field `file`; none
    where no file is read."""
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameters of the query, each with the values that it may have; none where it may have any.
    """
    events: str = ""
    """What the data of server-sent events are, where the answer may be a stream."""
    errors: tuple[int, ...] = ()
    """Statuses of its errors."""
    key: KeyRule = KeyRule.HEAD
    among_others: bool = False
    """Whether it lies below a path of another dialect, whose other errors look as that one's."""
    batch: bool = False
    """Whether the lines of a batch may be for it."""
    shares: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Paths shared with other dialects, each with the fields that identify the requests of this
    one: a POST of JSON with all of them is answered here. The key of such a path may be in its
    body; the endpoint looks for its own."""

    @property
    def error_path(self) -> str:
        """The beginning of the paths whose errors look as its own."""
        first, slash, _ = self.path.removeprefix("/").partition("/")
        return self.path if self.among_others else f"/{first}{slash}"


@dataclass(frozen=True)
class Dialect(Generic[EndpointsT]):
    """One API that is spoken; `serving.server.dialects.DIALECTS` lists them."""

    endpoints: Callable[[Backend], EndpointsT]
    """Makes what the endpoints are methods of, once for each app."""
    routes: tuple[DialectRoute[EndpointsT], ...]
    """In the order in which the OpenAPI document lists them."""
    error: type[BaseModel] = Error
    """The body of an error."""
    render_error: Callable[[ServingError], Response] = error_response
    """The answer to a request that fails."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """What a status means in this dialect, where that is not what it means in others."""
    key_schemes: tuple[str, ...] = ()
    """Schemes of the header Authorization that carry a key, besides Bearer; in small letters."""

    @property
    def error_paths(self) -> tuple[str, ...]:
        """Beginnings of the paths whose errors look as this dialect's, whether there is such a
        route or not: `/v1/` where a route is below it, `/embed` where a route is just that."""
        return tuple(dict.fromkeys(route.error_path for route in self.routes))
