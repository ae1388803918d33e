"""The queue between the server's threads, which fill it, and the decoding threads, which empty
it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NoReturn, Protocol, TypeVar

from serving.errors import NotReadyError, OverloadedError

_LOOK_EVERY_S = 0.02
_TAKES = 64
_LONGEST_RETRY_S = 60.0
WAITING_SHARE = 0.5
"""Share of a request's time that it may spend waiting; the rest is for decoding."""
_FORGET_S = 10.0
"""Once the queue is empty and nothing was taken for that long, the measured pace is forgotten."""


class Expiring(Protocol):
    """An item of the queue; it has a deadline and can end while it waits."""

    @property
    def deadline(self) -> float:
        """The time by which it must have ended (monotonic)."""
        ...

    def expire(self) -> bool:
        """Whether it has ended; an overdue one fails now."""
        ...


Item = TypeVar("Item", bound=Expiring)


class RequestQueue(Generic[Item]):
    """A bounded queue, oldest first; ended and overdue requests are removed.

    At the pace of the last takes, a request that would wait too long is refused at once: it would
    only delay others. No request is refused for this while the queue is empty or the pace unknown.
    """

    def __init__(self, max_size: int, unit: str) -> None:
        """`unit` is the plural noun for a request in messages."""
        self._max_size, self._unit = max_size, unit
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._takes: deque[tuple[float, int]] = deque(maxlen=_TAKES)
        """Recent takes that left requests waiting: the seconds until the next take, and the number
        that this next one took. Other takes do not show the pace, since they emptied the queue."""
        self._left_at: float | None = None
        """Time of the last take, if it left requests waiting."""
        self._taken_at = 0.0
        self._next_look = 0.0
        self._closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, items: Sequence[Item], max_wait_s: float | None = None) -> None:
        """Add requests, all or none. Raises OverloadedError, or NotReadyError once closed.

        `max_wait_s` bounds the seconds until decoding of the new requests may start. It applies
        beside the share of their deadline that they may spend waiting; None sets no bound.
        """
        with self._changed:
            if self._closing:
                raise NotReadyError("the server is shutting down; try again later")
            if not items:  # all of them were joined to others
                return
            if len(self._waiting) + len(items) > self._max_size:
                self._drop_ended()
            if len(self._waiting) + len(items) > self._max_size:
                self._refuse(
                    f"the queue holds at most {self._max_size} {self._unit} and has "
                    f"{len(self._waiting)}",
                    self._wait_s(),
                )
            if not self._waiting:
                self._forget_pace()
            else:
                self._check_wait(min(item.deadline for item in items), max_wait_s)
            self._waiting.extend(items)
            self._changed.notify_all()

    def put_back(self, item: Item) -> None:
        """Put back requests that were decoded before, ahead of all others; the bound does not
        apply."""
        with self._changed:
            self._waiting.appendleft(item)
            self._changed.notify_all()

    def take(
        self, choose: Callable[[Item], bool | None], takers: Callable[[], int] = lambda: 1
    ) -> list[Item]:
        """Remove and return the requests that `choose` accepts, oldest first; stop when it returns
        None.

        Takes at most one share of `takers()` equal shares. The queue is locked during both
        callbacks.
        """
        if not self._waiting:
            return []
        with self._changed:
            taken: list[Item] = []
            left: deque[Item] = deque()
            share = -(-len(self._waiting) // takers())
            while self._waiting and len(taken) < share:
                item = self._waiting.popleft()
                if item.expire():
                    continue
                chosen = choose(item)
                (taken if chosen else left).append(item)
                if chosen is None:
                    break
            self._waiting.extendleft(reversed(left))
            if taken:
                now = time.monotonic()
                if self._left_at is not None:
                    self._takes.append((now - self._left_at, len(taken)))
                self._left_at = now if self._waiting else None
                self._taken_at = now
            return taken

    def drop_ended(self) -> None:
        """Remove requests that have ended; fail and remove overdue ones. Call it often: it checks
        only now and then."""
        now = time.monotonic()
        if self._waiting and now >= self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            with self._changed:
                self._drop_ended()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a request, at most `timeout_s` seconds; returns False once the queue is closed
        and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing, timeout_s)
            return bool(self._waiting) or not self._closing

    @property
    def closed(self) -> bool:
        """Whether the queue accepts no more requests."""
        return self._closing

    def close(self) -> None:
        """Accept no more requests, and wake the waiting threads. Requests in the queue stay."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _drop_ended(self) -> None:
        self._waiting = deque(item for item in self._waiting if not item.expire())

    def _check_wait(self, deadline: float, max_wait_s: float | None) -> None:
        """Raise OverloadedError if the wait is too long for a request with this deadline or this
        `max_wait_s`."""
        wait_s, left_s = self._wait_s(), deadline - time.monotonic()
        waiting = f"{len(self._waiting)} {self._unit} wait, which takes about {wait_s:.1f} s"
        if 0 < WAITING_SHARE * left_s < wait_s:  # one that is overdue fails by itself
            self._refuse(
                f"{waiting}, too long for a request that must end in {left_s:.1f} s", wait_s
            )
        if left_s > 0 and max_wait_s is not None and max_wait_s < wait_s:
            self._refuse(
                f"{waiting}, too long for a request that may wait {max_wait_s:g} s", wait_s
            )

    def _forget_pace(self) -> None:
        """Forget an old pace: after a pause the load may be of another kind."""
        if time.monotonic() - self._taken_at > _FORGET_S:
            self._takes.clear()
            self._left_at = None

    def _wait_s(self) -> float:
        """Estimated seconds until all waiting requests have been taken; 0 if the pace is
        unknown."""
        if not self._takes:
            return 0.0
        seconds = sum(interval for interval, _ in self._takes)
        if self._left_at is not None:
            seconds += time.monotonic() - self._left_at
        return len(self._waiting) * seconds / sum(count for _, count in self._takes)

    def _refuse(self, reason: str, wait_s: float) -> NoReturn:
        error = OverloadedError(f"{reason}; try again later")
        error.retry_after_s = min(max(wait_s, OverloadedError.retry_after_s), _LONGEST_RETRY_S)
        raise error
