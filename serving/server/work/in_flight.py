"""Waiting for submitted requests while watching the clock and the client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

from starlette.types import Receive

from serving.errors import CancelledError, DeadlineExceededError, ServingError
from serving.server.http.access_log import RequestContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)


class Pending(Protocol[T_co]):
    """A ticket of a scheduler, which ends once, with a result or an error."""

    def result(self) -> T_co: ...

    def when_done(self, act: Callable[[], None]) -> None: ...

    def cancel(self) -> None: ...


async def wait_all(tickets: Sequence[Pending[T]], receive: Receive, timeout_s: float) -> list[T]:
    """Wait for all tickets; gives their results in the same order.

    Raises the first error among them, DeadlineExceededError after `timeout_s`, and CancelledError
    when the client goes away; whatever ends it, nothing of the request is decoded further. The
    body must have been read.
    """
    # Plain callbacks in place of a task for each ticket: under load this code and the decoding
    # threads wait for each other's Python.
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[list[T]] = loop.create_future()
    left = len(tickets)

    def end(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def note(ticket: Pending[T]) -> None:
        nonlocal left
        left -= 1
        try:
            ticket.result()
            if not left and not outcome.done():
                outcome.set_result([ticket.result() for ticket in tickets])
        except Exception as error:
            end(error)

    def tell(ticket: Pending[T]) -> None:  # on the thread that ended it
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(note, ticket)

    async def depart() -> None:
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            end(CancelledError("the client left before its answer was ready"))

    if not tickets:
        return []
    for ticket in tickets:
        ticket.when_done(functools.partial(tell, ticket))
    departure = asyncio.create_task(depart())
    overdue = DeadlineExceededError(f"not finished within {timeout_s:g} seconds")
    clock = loop.call_later(timeout_s, end, overdue)
    try:
        return await outcome
    finally:
        clock.cancel()
        departure.cancel()
        for ticket in tickets:
            ticket.cancel()  # changes nothing where it has ended


class Eventful(Protocol[T_co]):
    """A ticket of a scheduler that tells what happens to it."""

    def events(self) -> AsyncIterator[T_co]: ...


async def merged_events(
    tickets: Sequence[Eventful[T]], context: RequestContext
) -> AsyncIterator[tuple[int, T]]:
    """The events of all tickets of a request as they come, each with the ticket's number, until the
    last has ended. Raises the first error among them."""
    queue: asyncio.Queue[tuple[int, T] | ServingError | None] = asyncio.Queue()

    async def follow(number: int, ticket: Eventful[T]) -> None:
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
