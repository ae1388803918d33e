"""Around every request: its id, its log line, its metrics, and an answer where all else failed."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import ServingError
from serving.server.metrics import Metrics
from serving.server.record import CURRENT, RequestRecord

REQUEST_ID = "X-Request-ID"

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_QUIET = ("/livez", "/readyz", "/metrics")
"""Asked every few seconds by machines."""

logger = logging.getLogger(__name__)


class Access:
    """Gives every request an id, counts and logs it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(_request_id(scope))
        status, complete, left = 0, False, False

        async def watch_send(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = record.request_id
            elif message["type"] == "http.response.body":
                complete = not message.get("more_body", False)
            await send(message)

        async def watch_receive() -> Message:
            nonlocal left
            message = await receive()
            left = left or (message["type"] == "http.disconnect" and not complete)
            return message

        begin = time.perf_counter()
        before = CURRENT.set(record)
        self._metrics.in_progress.inc()
        try:
            await self._app(scope, watch_receive, watch_send)
        finally:
            self._metrics.in_progress.dec()
            seconds = time.perf_counter() - begin
            self._note(scope, record, status, seconds, left=left)
            CURRENT.reset(before)

    def _note(
        self, scope: Scope, record: RequestRecord, status: int, seconds: float, *, left: bool
    ) -> None:
        metrics, route = self._metrics, _route(scope)
        metrics.requests.labels(route, str(status), record.model).inc()
        metrics.request_seconds.labels(route).observe(seconds)
        if record.error:
            metrics.errors.labels(record.error).inc()
        if left:
            metrics.cancelled.labels(route).inc()
        level = logging.DEBUG if route in _QUIET and status < 400 else logging.INFO
        if not logger.isEnabledFor(level):
            return
        fields = {
            "method": scope["method"] if len(scope["method"]) < 20 else "?",
            "route": route,
            "status": status,
            "duration_ms": round(seconds * 1000, 1),
        }
        if record.client:
            fields["key"] = record.client
        if record.model:
            fields |= {"model": record.model, "texts": record.texts, "tokens": record.tokens}
            fields["queue_ms"] = round(record.queue_s * 1000, 1)
            fields["decode_ms"] = round(record.decode_s * 1000, 1)
        if record.error:
            fields["error"] = record.error
        if left:
            fields["client_left"] = True
        logger.log(level, "request", extra=fields)


class LastResort:
    """Answers 500 where anything unforeseen is raised.

    Starlette's own handler raises the error again, and BentoML sends no answer at all for an error
    that leaves the app before its response has begun.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[str, ServingError], Response]) -> None:
        """`refuse` makes the answer, of a path and an error."""
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
            logger.exception("unforeseen error in %s %s", scope["method"], _route(scope))
            if not begun:
                error = ServingError("the server failed; its log says why")
                await self._refuse(scope["path"], error)(scope, receive, send)


def _request_id(scope: Scope) -> str:
    """The client's own, if it is one that can be logged, or a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _route(scope: Scope) -> str:
    """The template of the route: paths are as many as clients like."""
    route = scope.get("route")
    return route.path if route is not None else "none"
