"""Where requests wait: filled by the server's threads, emptied by those that decode."""

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
"""Of the time that a request has, the part it may spend waiting; the rest is for decoding."""
_FORGET_S = 10.0
"""Seconds without a take after which nothing is known of the pace, once all has been taken."""


class Expiring(Protocol):
    """What may wait in the queue: it has a deadline, and can end while it waits."""

    @property
    def deadline(self) -> float:
        """When it must have ended, by the monotonic clock."""
        ...

    def expire(self) -> bool:
        """Whether it has ended, or is overdue and fails now."""
        ...


Item = TypeVar("Item", bound=Expiring)


class RequestQueue(Generic[Item]):
    """A bounded queue, oldest first; ended and overdue requests leave it.

    What would wait too long, at the pace of the last takes, is refused at once: it would only keep
    others waiting. Nothing is refused for that while nothing waits or no pace is known.
    """

    def __init__(self, max_size: int, unit: str) -> None:
        """`unit` is what messages call a request, in the plural."""
        self._max_size, self._unit = max_size, unit
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._takes: deque[tuple[float, int]] = deque(maxlen=_TAKES)
        """Of late: seconds between two takes, the first of which left some waiting, and how many
        the second took. Only such show the pace: else there was room for all that came."""
        self._left_at: float | None = None
        """When the last take left some waiting."""
        self._taken_at = 0.0
        self._next_look = 0.0
        self._closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, items: Sequence[Item], max_wait_s: float | None = None) -> None:
        """Add requests, all or none; raises OverloadedError, or NotReadyError once closed.

        `max_wait_s` are the seconds that what waits already may take until they are begun, besides
        the share of their deadline that may be spent so; None sets no bound.
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
        """Add what has been decoded before, ahead of all others, whatever the bound."""
        with self._changed:
            self._waiting.appendleft(item)
            self._changed.notify_all()

    def take(
        self, choose: Callable[[Item], bool | None], takers: Callable[[], int] = lambda: 1
    ) -> list[Item]:
        """Remove those that are chosen, asked oldest first until the answer is None.

        No more are taken than the share of one of the `takers`. The queue is locked while either is
        called.
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
        """Let requests that have ended or are overdue leave, which fails the overdue; to be called
        often, looks now and then."""
        now = time.monotonic()
        if self._waiting and now >= self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            with self._changed:
                self._drop_ended()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there is a request, at most that long; False once the queue is closed and
        empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing, timeout_s)
            return bool(self._waiting) or not self._closing

    @property
    def closed(self) -> bool:
        """Whether nothing more is accepted."""
        return self._closing

    def close(self) -> None:
        """Accept nothing more and wake whoever waits to take; what waits already stays."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _drop_ended(self) -> None:
        self._waiting = deque(item for item in self._waiting if not item.expire())

    def _check_wait(self, deadline: float, max_wait_s: float | None) -> None:
        """Raise OverloadedError where what waits takes longer than a request may wait that must
        have ended by the deadline."""
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
        """Forget what was measured long ago: what comes after a rest may be of another kind."""
        if time.monotonic() - self._taken_at > _FORGET_S:
            self._takes.clear()
            self._left_at = None

    def _wait_s(self) -> float:
        """Seconds until all that waits has been taken, at the pace of late; 0 where none is
        known."""
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
