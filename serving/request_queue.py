"""Where requests wait: filled by the server's threads, emptied by those that decode."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from serving.errors import NotReadyError, OverloadedError

_LOOK_EVERY_S = 0.02
_TAKES = 64
_LONGEST_WAIT_S = 60.0


class Expiring(Protocol):
    """What can wait."""

    def expire(self) -> bool:
        """Whether it has ended, or is overdue and fails now."""
        ...


Item = TypeVar("Item", bound=Expiring)


class RequestQueue(Generic[Item]):
    """A bounded queue, oldest first; ended and overdue requests leave it."""

    def __init__(self, max_size: int, unit: str) -> None:
        """`unit` is what messages call a request, in the plural."""
        self._max_size, self._unit = max_size, unit
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._takes: deque[tuple[float, int]] = deque(maxlen=_TAKES)
        """When requests were taken lately, and how many."""
        self._next_look = 0.0
        self._closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, items: Sequence[Item]) -> None:
        """Add requests, all or none; raises OverloadedError, or NotReadyError once closed."""
        with self._changed:
            if self._closing:
                raise NotReadyError("the server is shutting down; try again later")
            self._drop_ended()
            if len(self._waiting) + len(items) > self._max_size:
                overloaded = OverloadedError(
                    f"the queue holds at most {self._max_size} {self._unit} and has "
                    f"{len(self._waiting)}; try again later"
                )
                overloaded.retry_after_s = self._wait_s()
                raise overloaded
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
                self._takes.append((time.monotonic(), len(taken)))
            return taken

    def drop_ended(self) -> None:
        """Let requests that have ended or are overdue leave, which fails the overdue; to be called
        often, looks now and then."""
        now = time.monotonic()
        if self._waiting and now >= self._next_look:
            self._next_look = now + _LOOK_EVERY_S
            with self._changed:
                self._drop_ended()

    def wait(self) -> bool:
        """Wait until there is a request; False once the queue is closed and empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return bool(self._waiting)

    def close(self) -> None:
        """Accept nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _drop_ended(self) -> None:
        self._waiting = deque(item for item in self._waiting if not item.expire())

    def _wait_s(self) -> float:
        """Seconds until all that waits has been taken, at the pace of late."""
        if not self._takes:
            return OverloadedError.retry_after_s
        seconds = time.monotonic() - self._takes[0][0]
        pace = sum(count for _, count in self._takes) / max(seconds, 1e-3)
        return min(len(self._waiting) / pace, _LONGEST_WAIT_S)
