"""The way of every request through the server, for all tasks and dialects.

It chooses the model, records and charges the request, encodes and queues the texts, waits for the
results and counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from serving.errors import CancelledError, DeadlineExceededError, RequestError, ServingError
from serving.generation.ticket import GenerationDone
from serving.queue.ticket import HeldWork
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings, variable
from serving.server.work.courtesy import hand_over
from serving.server.work.threads import on_threads_for
from serving.translation.ticket import Completed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

_AT_ONCE = 1000
"""Most characters that are processed on the event loop: about a millisecond. Larger inputs would
delay other requests; for shorter ones changing threads costs more than the work."""


@dataclass(frozen=True)
class Caller:
    """The client that waits for an answer."""

    context: RequestContext
    characters: float
    """Characters of the client's input; long input is processed in another thread."""
    receive: Receive | None = None
    """Receives the disconnect of a client that wants the whole answer; None for a stream, whose
    writer handles disconnects."""
    loads: bool | None = False
    """Whether the request loads a model, for which it waits in threads of its own; None if it
    may."""


@dataclass(frozen=True)
class TimeLimit:
    """Time limits of a request."""

    timeout_s: float
    """Seconds until it must end."""
    max_wait_s: float | None
    """Seconds until decoding must start; None sets no separate limit."""
    held: list[HeldWork] | None = None
    """List for the works of a request that nobody waits for, in place of the queue. `results`
    queues them so that they do not delay others."""
    since: float = field(default_factory=time.monotonic)

    def rest(self) -> TimeLimit:
        """The limit for the rest of a request that is partly done: the remaining seconds, without a
        limit on the start, since the finished part would be wasted."""
        left_s = max(0.0, self.since + self.timeout_s - time.monotonic())
        return TimeLimit(left_s, None, None if self.held is None else [])


@dataclass(frozen=True)
class Chosen(Generic[R]):
    """The texts of one request with their chosen model."""

    model: str
    """Name of the model, for logs and metrics."""
    task: str
    """Task of the model, for the usage of keys."""
    texts: int
    characters: int | None
    """Characters to charge; None if they were charged before."""
    submit: Callable[[], R]
    """Encodes the texts and queues them, all or none."""


async def apart(caller: Caller, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `act`, in another thread if it would delay other requests: by a large input, or by the
    loading of a model."""
    if caller.loads:
        return await on_threads_for("models", functools.partial(act, *args, **kwargs))
    if caller.characters <= _AT_ONCE and caller.loads is False:
        return act(*args, **kwargs)
    return await run_in_threadpool(act, *args, **kwargs)


class Pending(Protocol[T_co]):
    """A ticket of a scheduler: it ends once, with a result or an error."""

    def result(self) -> T_co: ...

    def when_done(self, act: Callable[[BaseException | None], None]) -> None: ...

    def cancel(self) -> None: ...


class _Eventful(Protocol[T_co]):
    """A ticket of a scheduler with a stream of events."""

    def events(self) -> AsyncIterator[T_co]: ...


class Pipeline:
    """Takes requests from the choice of a model to the count of their results."""

    def __init__(self, settings: Settings, gatekeeper: Gatekeeper) -> None:
        self._settings, self._gatekeeper = settings, gatekeeper

    def limit(self, timeout_s: float | None, context: RequestContext) -> TimeLimit:
        """The time limit of a request, as requested or by default. Raises RequestError if it
        exceeds the maximum. A request that nobody waits for has no limit by default, because its
        duration depends on the clients that it makes way for."""
        settings = self._settings
        held: list[HeldWork] | None = [] if context.background else None
        if timeout_s is None and context.background:
            return TimeLimit(math.inf, None, held)
        if timeout_s is None:
            return TimeLimit(settings.default_timeout_s, settings.max_wait_s)
        if timeout_s > settings.max_timeout_s:
            raise RequestError(
                f"timeout_s must be at most {settings.max_timeout_s:g} "
                f"({variable('max_timeout_s')}), got {timeout_s:g}",
                parameter="timeout_s",
            )
        return TimeLimit(timeout_s, None, held)

    async def begin(self, caller: Caller, choose: Callable[[], Chosen[R]]) -> R:
        """Choose the model and queue the texts; returns the result of its `submit`. Raises what
        both raise, RateLimitedError and QuotaExceededError."""

        def act() -> R:
            chosen = choose()
            caller.context.model, caller.context.texts = chosen.model, chosen.texts
            take_back: Callable[[], None] | None = None
            if chosen.characters is not None:
                take_back = self._gatekeeper.charge(caller.context, chosen.characters, chosen.task)
            try:
                return chosen.submit()
            except BaseException:
                if take_back is not None:
                    take_back()
                raise

        return await apart(caller, act)

    async def results(
        self, tickets: Sequence[Pending[T]], caller: Caller, limit: TimeLimit
    ) -> list[T]:
        """The results of all tickets, in order. Raises the first error, DeadlineExceededError, and
        CancelledError if the client disconnects."""
        assert caller.receive is not None
        queueing: asyncio.Task[None] | None = None
        if limit.held:
            queueing = asyncio.create_task(hand_over(limit.held, self._idle_s))
        try:
            found = await _all(tickets, caller.receive, limit.timeout_s)
        finally:
            if queueing is not None:
                queueing.cancel()
        for result in found:
            _count(caller.context, result)
        return found

    async def events(
        self, tickets: Sequence[Any], caller: Caller, limit: TimeLimit
    ) -> AsyncGenerator[tuple[int, Any]]:
        """The events of all tickets as they come, each with its ticket's index. A caller that wants
        the whole answer gets the last event of each ticket only, which needs no task for each.
        Closing the generator cancels the rest. Raises the first error."""
        if caller.receive is not None:
            for each in enumerate(await self.results(tickets, caller, limit)):
                yield each
            return
        try:
            async for number, event in _merged(tickets, caller.context):
                _count(caller.context, event)
                yield number, event
        finally:
            _give_up(tickets)

    def _idle_s(self) -> float:
        return self._gatekeeper.idle_s


def _give_up(tickets: Sequence[Pending[Any]]) -> None:
    for ticket in tickets:
        ticket.cancel()  # has no effect if it has ended


def _count(context: RequestContext, event: object) -> None:
    """Record in the context the longest time of a text, and the number of generated tokens."""
    if isinstance(event, Completed):
        context.queue_s = max(context.queue_s, event.timing.queue_s)
        context.decode_s = max(context.decode_s, event.timing.decode_s)
        for best in event.translation.hypotheses[:1]:
            context.tokens += len(best.token_scores)
    elif isinstance(event, GenerationDone):
        context.tokens += event.num_generated_tokens


async def _all(tickets: Sequence[Pending[T]], receive: Receive, timeout_s: float) -> list[T]:
    """Wait for all tickets; returns their results in order.

    Raises the first error, DeadlineExceededError after `timeout_s`, and CancelledError if the
    client disconnects; in each case the rest is cancelled. The body must have been read.
    """
    # Plain callbacks in place of a task for each ticket: under load this code and the decoding
    # threads wait for each other's Python.
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[None] = loop.create_future()
    left, counting = len(tickets), threading.Lock()

    def end(error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    def note_end(error: BaseException | None) -> None:  # on the thread that ended a ticket
        nonlocal left
        with counting:
            left -= 1
            over = left == 0 or (error is not None and left > 0)
            if error is not None:
                left = 0  # the rest has no effect
        if over:  # the loop is woken once, not for each ticket
            with contextlib.suppress(RuntimeError):  # it has been closed
                loop.call_soon_threadsafe(end, error)

    async def depart() -> None:
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            end(CancelledError("the client left before its answer was ready"))

    if not tickets:
        return []
    for ticket in tickets:
        ticket.when_done(note_end)
    departure = asyncio.create_task(depart())
    overdue = DeadlineExceededError(f"not finished within {timeout_s:g} seconds")
    clock = loop.call_later(timeout_s, end, overdue)
    try:
        await outcome
        return [ticket.result() for ticket in tickets]
    except BaseException:
        _give_up(tickets)
        raise
    finally:
        clock.cancel()
        departure.cancel()


async def _merged(
    tickets: Sequence[_Eventful[T]], context: RequestContext
) -> AsyncIterator[tuple[int, T]]:
    """The events of all tickets of a request as they come, each with its ticket's index, until the
    last has ended. Raises the first error."""
    queue: asyncio.Queue[tuple[int, T] | ServingError | None] = asyncio.Queue()

    async def follow(number: int, ticket: _Eventful[T]) -> None:
        try:
            async for event in ticket.events():
                queue.put_nowait((number, event))
            queue.put_nowait(None)
        except Exception as error:
            if not isinstance(error, ServingError):
                extra = {"request_id": context.request_id}
                logger.exception("unexpected error in a stream", extra=extra)
                error = ServingError("the server failed; its log says why")
            queue.put_nowait(error)

    tasks = [asyncio.create_task(follow(n, ticket)) for n, ticket in enumerate(tickets)]
    left = len(tasks)
    try:
        while left:
            event = await queue.get()
            if isinstance(event, ServingError):
                raise event
            if event is None:
                left -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
