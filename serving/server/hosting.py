"""The frame around the app in a worker that uvicorn runs by itself: start and end of the models,
the span of each request, and a limit of its time. BentoML's own worker has the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.responses import JSONResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.server.lifetime import Lifetime

TIMEOUT_MARGIN_S = 10
"""Seconds that a request may take beyond the longest `timeout_s`: our own deadlines come first."""
_PROPAGATOR = TraceContextTextMapPropagator()


class Hosted:
    """Hands requests to the app, and the start and end of the server to the models."""

    def __init__(self, app: ASGIApp, lifetime: Lifetime, timeout_s: float) -> None:
        """Create the frame. A request whose answer has not begun after `timeout_s` ends with status
        504."""
        self._app, self._timeout_s = app, timeout_s

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            await lifetime.start()
            yield
            await lifetime.stop()

        self._life = Router(lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._life(scope, receive, send)
            return
        with trace.use_span(_span(scope), record_exception=False, set_status_on_exception=False):
            await self._within_time(scope, receive, send)

    async def _within_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, limit = False, asyncio.timeout(self._timeout_s)

        async def watch(message: Message) -> None:
            nonlocal begun
            if not begun:
                begun = True
                limit.reschedule(None)
            await send(message)

        try:
            async with limit:
                await self._app(scope, receive, watch)
        except TimeoutError:
            if begun or not limit.expired():
                raise
            body = {"error": f"Not able to process the request in {self._timeout_s} seconds"}
            await JSONResponse(body, HTTPStatus.GATEWAY_TIMEOUT)(scope, receive, send)


def _span(scope: Scope) -> trace.Span:
    """A span in the caller's trace (W3C Trace Context), or in one of its own. It is not recorded:
    an exporter needs BentoML's worker."""
    given = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in (b"traceparent", b"tracestate")
    }
    caller = trace.get_current_span(_PROPAGATOR.extract(given)).get_span_context()
    known = caller.is_valid
    context = trace.SpanContext(
        caller.trace_id if known else random.getrandbits(128) or 1,
        random.getrandbits(64) or 1,
        is_remote=False,
        trace_flags=caller.trace_flags if known else None,
        trace_state=caller.trace_state if known else None,
    )
    return trace.NonRecordingSpan(context)
