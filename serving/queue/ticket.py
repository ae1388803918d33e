"""A submitted request: its outcome, which threads and coroutines can wait for, and its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from serving.errors import CancelledError, DeadlineExceededError, NotReadyError

Result = TypeVar("Result")


@dataclass(frozen=True)
class RequestTiming:
    """Where the time of a request went, in seconds."""

    queue_s: float
    encode_s: float
    """In the encoder, together with those that joined at the same time."""
    decode_s: float
    batch_size: int
    """Rows being decoded when it joined them, its own included."""


class Ticket(Generic[Result]):
    """One request on its way through a scheduler; it ends once, in whatever way comes first."""

    def __init__(self, timeout_s: float | None = None) -> None:
        """`timeout_s` are the seconds from now to the deadline; None is no deadline."""
        self.submitted = time.monotonic()
        self.deadline = self.submitted + (float("inf") if timeout_s is None else timeout_s)
        self._future: Future[Result] = Future()
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._future.add_done_callback(lambda _: self._wake())

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the outcome; raises the ServingError that ended the request."""
        return self._future.result(timeout)

    async def wait(self) -> Result:
        """`result` for coroutines: the event loop goes on meanwhile."""
        inner = asyncio.wrap_future(self._future)
        # Where nobody waits any more, an error is nobody's.
        inner.add_done_callback(lambda future: future.cancelled() or future.exception())
        return await asyncio.shield(inner)

    def when_done(self, act: Callable[[BaseException | None], None]) -> None:
        """Call `act` with the error, or None, once the request has ended, on the thread that ends
        it; at once if it has."""
        self._future.add_done_callback(lambda future: act(future.exception()))

    async def _changes(self) -> AsyncIterator[bool]:
        """Whether it has ended, asked before each look at its news: at first, whenever
        there were some, and for the last time at the end."""
        changed = asyncio.Event()
        with self._lock:
            self._listeners.append((asyncio.get_running_loop(), changed))
        done = False
        while not done:
            changed.clear()
            done = self.done
            yield done
            if not done:
                await changed.wait()

    def _wake(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for loop, changed in listeners:
            with contextlib.suppress(RuntimeError):  # its loop has been closed
                loop.call_soon_threadsafe(changed.set)

    def cancel(self) -> None:
        """Give the request up; its rows are freed soon."""
        self.fail(CancelledError("the request was cancelled"))

    @property
    def done(self) -> bool:
        """Whether the request has ended, in whatever way."""
        return self._future.done()

    def complete(self, outcome: Result) -> None:
        """Deliver the outcome, unless the request has ended already."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_result(outcome)

    def timing(self, started: float, encode_s: float, batch_size: int) -> RequestTiming:
        """Where its time went by now, if a batch of so many rows started then; that may have been
        for another request, which this one joined."""
        began = max(started, self.submitted)
        encode_s = max(0.0, encode_s - (began - started))
        decode_s = time.monotonic() - began - encode_s
        return RequestTiming(began - self.submitted, encode_s, decode_s, batch_size)

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended already."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_exception(error)

    def expire(self) -> bool:
        """Whether the request has ended, or is overdue and fails now."""
        if self.done:
            return True
        if time.monotonic() <= self.deadline:
            return False
        self.fail(DeadlineExceededError("not finished before the deadline"))
        return True


class OpenTickets:
    """Tickets of a scheduler that someone still holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: WeakSet[Ticket[Any]] = WeakSet()

    def add(self, tickets: Iterable[Ticket[Any]]) -> None:
        """Remember these, for as long as somebody else holds them."""
        with self._lock:
            self._tickets.update(tickets)

    def abandon(self) -> None:
        """Fail those that have not ended, with NotReadyError."""
        with self._lock:
            tickets = list(self._tickets)
        for ticket in tickets:
            ticket.fail(NotReadyError("the server is shutting down; try again"))
