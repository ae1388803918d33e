"""The way of every request through the server, whatever its task and its dialect.

A model is chosen, the request noted and charged, its texts encoded and queued, and what comes of
them awaited and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from serving.errors import CancelledError, DeadlineExceededError, RequestError, ServingError
from serving.generation.ticket import GenerationDone
from serving.server.http.access_log import RequestContext
from serving.server.http.gate import Gatekeeper
from serving.server.http.settings import Settings, variable
from serving.server.work.threads import on_threads_for
from serving.translation.ticket import Completed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

_AT_ONCE = 1000
"""Characters that are read on the event loop: within a millisecond. A full body would hold up other
requests, but a change of threads costs more than a short text does."""


@dataclass(frozen=True)
class Caller:
    """Whoever waits for an answer."""

    context: RequestContext
    characters: float
    """How many of the caller's are read: many are read on another thread."""
    receive: Receive | None = None
    """Tells when the client leaves, where the answer is wanted whole; None where it is streamed:
    who streams it sees to that."""
    loads: bool | None = False
    """Whether a model is loaded for this, which is waited for on threads that nothing else needs;
    None where one may be."""


@dataclass(frozen=True)
class TimeLimit:
    """How long a request may take."""

    timeout_s: float
    """Until its end, from now on."""
    max_wait_s: float | None
    """Until it is begun; None leaves that to its end."""
    since: float = field(default_factory=time.monotonic)

    def rest(self) -> TimeLimit:
        """For what follows once a part of the request is done: the seconds that are left, and no
        bound on the wait, since what is done would be in vain."""
        return TimeLimit(max(0.0, self.since + self.timeout_s - time.monotonic()), None)


@dataclass(frozen=True)
class Chosen(Generic[R]):
    """Texts of one request, for which a model has been chosen."""

    model: str
    """Its name, for logs and metrics."""
    task: str
    """What it does, for the usage of keys."""
    texts: int
    characters: int | None
    """What the client is charged for; None where it has been before."""
    submit: Callable[[], R]
    """Encodes the texts and queues them, all or none."""


async def apart(caller: Caller, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `act`: on another thread where it reads so much of the caller's, or waits so long, that
    it would hold up other requests."""
    if caller.loads:
        return await on_threads_for("models", functools.partial(act, *args, **kwargs))
    if caller.characters <= _AT_ONCE and caller.loads is False:
        return act(*args, **kwargs)
    return await run_in_threadpool(act, *args, **kwargs)


class Pending(Protocol[T_co]):
    """A ticket of a scheduler, which ends once, with a result or an error."""

    def result(self) -> T_co: ...

    def when_done(self, act: Callable[[BaseException | None], None]) -> None: ...

    def cancel(self) -> None: ...


class _Eventful(Protocol[T_co]):
    """A ticket of a scheduler that tells what happens to it."""

    def events(self) -> AsyncIterator[T_co]: ...


class Pipeline:
    """Takes requests from the choice of a model to the count of what came of them."""

    def __init__(self, settings: Settings, gatekeeper: Gatekeeper) -> None:
        self._settings, self._gatekeeper = settings, gatekeeper

    def limit(self, timeout_s: float | None, context: RequestContext) -> TimeLimit:
        """The time that a request has which asks for so much, or for none in particular; raises
        RequestError for more than any may have."""
        settings = self._settings
        if timeout_s is None and context.background:
            return TimeLimit(settings.max_timeout_s, None)
        if timeout_s is None:
            return TimeLimit(settings.default_timeout_s, settings.max_wait_s)
        if timeout_s > settings.max_timeout_s:
            raise RequestError(
                f"timeout_s must be at most {settings.max_timeout_s:g} "
                f"({variable('max_timeout_s')}), got {timeout_s:g}",
                parameter="timeout_s",
            )
        return TimeLimit(timeout_s, None)

    async def begin(self, caller: Caller, choose: Callable[[], Chosen[R]]) -> R:
        """Have the model chosen and the texts queued; gives what its `submit` does. Raises
        what the two do, RateLimitedError and QuotaExceededError."""

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
        self, tickets: Sequence[Pending[T]], caller: Caller, timeout_s: float
    ) -> list[T]:
        """What came of all tickets, in their order. Raises the first error among them,
        DeadlineExceededError, and CancelledError when the client goes away."""
        assert caller.receive is not None
        found = await _all(tickets, caller.receive, timeout_s)
        for result in found:
            _count(caller.context, result)
        return found

    async def events(
        self, tickets: Sequence[Any], caller: Caller, timeout_s: float
    ) -> AsyncGenerator[tuple[int, Any]]:
        """The events of all tickets as they come, each with the ticket's number; of a caller who
        wants a whole answer the last of each alone, which takes no task a ticket. What is left when
        the generator is closed is given up. Raises the first error among them."""
        if caller.receive is not None:
            for each in enumerate(await self.results(tickets, caller, timeout_s)):
                yield each
            return
        try:
            async for number, event in _merged(tickets, caller.context):
                _count(caller.context, event)
                yield number, event
        finally:
            _give_up(tickets)


def _give_up(tickets: Sequence[Pending[Any]]) -> None:
    for ticket in tickets:
        ticket.cancel()  # changes nothing where it has ended


def _count(context: RequestContext, event: object) -> None:
    """Note in the context how long a text took, if longer than others, and how many tokens were
    generated."""
    if isinstance(event, Completed):
        context.queue_s = max(context.queue_s, event.timing.queue_s)
        context.decode_s = max(context.decode_s, event.timing.decode_s)
        for best in event.translation.hypotheses[:1]:
            context.tokens += len(best.token_scores)
    elif isinstance(event, GenerationDone):
        context.tokens += event.num_generated_tokens


async def _all(tickets: Sequence[Pending[T]], receive: Receive, timeout_s: float) -> list[T]:
    """Wait for all tickets; gives their results in the same order.

    Raises the first error among them, DeadlineExceededError after `timeout_s`, and CancelledError
    when the client goes away; whatever ends it, nothing of the request is decoded further. The
    body must have been read.
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

    def tell(error: BaseException | None) -> None:  # on the thread that ended a ticket
        nonlocal left
        with counting:
            left -= 1
            over = left == 0 or (error is not None and left > 0)
            if error is not None:
                left = 0  # the rest changes nothing
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
        ticket.when_done(tell)
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
    """The events of all tickets of a request as they come, each with the ticket's number, until the
    last has ended. Raises the first error among them."""
    queue: asyncio.Queue[tuple[int, T] | ServingError | None] = asyncio.Queue()

    async def follow(number: int, ticket: _Eventful[T]) -> None:
        try:
            async for event in ticket.events():
                queue.put_nowait((number, event))
            queue.put_nowait(None)
        except Exception as error:
            if not isinstance(error, ServingError):
                extra = {"request_id": context.request_id}
                logger.exception("unforeseen error in a stream", extra=extra)
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
