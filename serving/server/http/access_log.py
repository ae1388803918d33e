"""The outermost layers around every request: its context, its log line, its metrics, and an answer
if everything else has failed.

The outermost middleware creates the context. Code that handles the request gets it by name.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import ServingError
from serving.server.http.metrics import HttpMetrics
from serving.store.records.key import NO_LIMITS, KeyLimits

REQUEST_ID = "X-Request-ID"

CONTEXT = "macaron.context"
"""Key in the ASGI scope of a request under which its `RequestContext` is stored."""
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SLASHES = re.compile(r"//+")
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_QUIET = ("/livez", "/readyz", "/metrics")
"""Routes that machines request every few seconds; they are logged at `debug`."""

logger = logging.getLogger(__name__)


@dataclass
class RequestContext:
    """A request's client, and the data about it for the log line and the metrics at the end.

    The texts of a request are never recorded here.
    """

    request_id: str
    address: str = ""
    """Address of the client, as the connection gives it."""
    client: str = ""
    """The name under which the request is counted; empty until the gate has let it in."""
    key: str = ""
    """Short name of the API key, if the server requires keys; it is also the owner name of
    everything stored for this key."""
    limits: KeyLimits = NO_LIMITS
    """Limits of the key."""
    counted: bool = False
    """Whether the request is in the usage of its key. It is counted once, however many models it
    uses."""
    background: bool = False
    """Whether nobody waits for its answer."""
    model: str = ""
    """The chosen model; `several` if texts have different ones."""
    texts: int = 0
    """Number of texts, or prompts, that the model gets."""
    tokens: int = 0
    """Number of tokens generated for the best outputs."""
    queue_s: float = 0.0
    """Longest time in seconds that a text of the request waited."""
    decode_s: float = 0.0
    """Longest time in seconds that a text of the request was decoded."""
    error: str = ""
    """Code of the error that ended the request; empty if there was none."""
    answered: bool = False
    """Whether the whole answer has been sent."""
    left: bool = False
    """Whether the client left before that."""


class Access:
    """The outermost middleware: gives every request its context, counts it and logs it.

    It removes what stands before the path of a route: the scheme and host of an absolute target
    (which clients send to a proxy), and the prefix below which a proxy has put the server. It also
    joins successive slashes.
    """

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, prefix: str = "") -> None:
        """`prefix` is empty, or begins with a slash and ends without one."""
        self._app, self._metrics, self._prefix = app, metrics, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._cleaned(scope["path"])
        if path != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        context = RequestContext(_request_id(scope), (scope.get("client") or ("unknown",))[0])
        scope[CONTEXT] = context
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = context.request_id
            elif message["type"] == "http.response.body":
                context.answered = not message.get("more_body", False)
            await send(message)

        begin = time.perf_counter()
        self._metrics.in_progress.inc()
        try:
            await self._app(scope, receive, watch)
        finally:
            self._metrics.in_progress.dec()
            seconds = time.perf_counter() - begin
            route = _route(scope)
            _log(scope, route, context, status, seconds)
            self._metrics.count(
                route,
                status,
                seconds,
                model=context.model,
                error=context.error,
                left=context.left,
            )

    def _cleaned(self, path: str) -> str:
        path = _SLASHES.sub("/", _ABSOLUTE.sub("", path, count=1)) or "/"
        if self._prefix and (path == self._prefix or path.startswith(self._prefix + "/")):
            path = path.removeprefix(self._prefix) or "/"
        return path


class LastResort:
    """Answers 500 if an unexpected error is raised.

    Starlette's own handler raises the error again, and BentoML sends no answer at all for an error
    that leaves the app before its response has begun.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[Scope, ServingError], Response]) -> None:
        """`refuse` builds the answer to a request that an error has ended."""
        self._app, self._refuse = app, refuse

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
            extra = {"request_id": scope[CONTEXT].request_id}
            logger.exception(
                "unexpected error in %s %s", scope["method"], _route(scope), extra=extra
            )
            if not begun:
                error = ServingError("the server failed; its log says why")
                await self._refuse(scope, error)(scope, receive, send)


def _log(scope: Scope, route: str, context: RequestContext, status: int, seconds: float) -> None:
    """Write the log line of a finished request."""
    level = logging.DEBUG if route in _QUIET and status < 400 else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields = {
        "method": scope["method"] if len(scope["method"]) < 20 else "?",
        "route": route,
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
    }
    if context.key:
        fields["key"] = context.key
    if context.model:
        fields |= {"model": context.model, "texts": context.texts, "tokens": context.tokens}
        fields["queue_ms"] = round(context.queue_s * 1000, 1)
        fields["decode_ms"] = round(context.decode_s * 1000, 1)
    if context.error:
        fields["error"] = context.error
    if context.left:
        fields["client_left"] = True
    logger.log(level, "request", extra={**fields, "request_id": context.request_id})


def _request_id(scope: Scope) -> str:
    """The id that the client has sent, if it can be logged; otherwise a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _route(scope: Scope) -> str:
    """The template of the route, or `none` if there is no route for the path. Clients can send any
    number of paths, while labels of metrics must be few."""
    route = scope.get("route")
    return route.path if route is not None else "none"
