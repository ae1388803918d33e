"""Tickets: the outcome of a submitted request, for threads and coroutines, and its deadline."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from serving.errors import CancelledError, DeadlineExceededError, NotReadyError

if TYPE_CHECKING:  # it imports TLS, and decoding without a server uses no coroutines
    import asyncio

Result = TypeVar("Result")


@dataclass(frozen=True)
class RequestTiming:
    """The times that a request has spent in each stage, in seconds."""

    queue_s: float
    encode_s: float
    """Seconds in the encoder, together with requests that joined at the same time."""
    decode_s: float
    batch_size: int
    """Number of rows in the batch after it joined, its own included."""


class Ticket(Generic[Result]):
    """A request on its way through a scheduler; the first event that ends it wins."""

    def __init__(self, timeout_s: float | None = None) -> None:
        """`timeout_s` is the time to the deadline, in seconds; None sets no deadline."""
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
        """`result` for coroutines."""
        import asyncio

        inner = asyncio.wrap_future(self._future)
        # If nobody waits any more, no one must retrieve the error.
        inner.add_done_callback(lambda future: future.cancelled() or future.exception())
        return await asyncio.shield(inner)

    def when_done(self, act: Callable[[BaseException | None], None]) -> None:
        """Call `act` with the error, or None, when the request ends, in the thread that ends it; at
        once if it has ended."""
        self._future.add_done_callback(lambda future: act(future.exception()))

    async def _changes(self) -> AsyncIterator[bool]:
        """Yield, before each look at the news, whether the request has ended: once at first, then
        after each change, and once more at the end."""
        import asyncio

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
        """Cancel the request; its rows are freed soon."""
        self.fail(CancelledError("the request was cancelled"))

    @property
    def done(self) -> bool:
        """Whether the request has ended, for any reason."""
        return self._future.done()

    def complete(self, outcome: Result) -> None:
        """Deliver the outcome; ignored if the request has ended."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_result(outcome)

    def timing(self, started: float, encode_s: float, batch_size: int) -> RequestTiming:
        """The timing so far, if a batch of `rows` rows started at the given time. That batch may
        have been for an equal request that this one joined."""
        began = max(started, self.submitted)
        encode_s = max(0.0, encode_s - (began - started))
        decode_s = time.monotonic() - began - encode_s
        return RequestTiming(began - self.submitted, encode_s, decode_s, batch_size)

    def fail(self, error: BaseException) -> None:
        """End the request with an error; ignored if it has ended."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_exception(error)

    def expire(self) -> bool:
        """Whether the request has ended. If it is overdue, it fails now."""
        if self.done:
            return True
        if time.monotonic() <= self.deadline:
            return False
        self.fail(DeadlineExceededError("not finished before the deadline"))
        return True


@dataclass(frozen=True)
class HeldWork:
    """A work that is queued later: of a request that nobody waits for, once that delays no others;
    of one with several routes, once all of its texts are accepted."""

    ticket: Ticket[Any]
    queue: Callable[[], None]
    """Queues the work; raises what the scheduler raises."""
    at_once: int
    """Largest number of such works that run at the same time while nobody waits for anything. It is
    less than the rows of a batch, so that a new request finds room."""


class OpenTickets:
    """The tickets of a scheduler that are still referenced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: WeakSet[Ticket[Any]] = WeakSet()

    def add(self, tickets: Iterable[Ticket[Any]]) -> None:
        """Remember tickets, as long as others hold references to them."""
        with self._lock:
            self._tickets.update(tickets)

    def abandon(self) -> None:
        """Fail the unfinished requests with NotReadyError."""
        with self._lock:
            tickets = list(self._tickets)
        for ticket in tickets:
            ticket.fail(NotReadyError("the server is shutting down; try again"))
