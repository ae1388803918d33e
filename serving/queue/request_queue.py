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
_TAKES, _ENDS = 64, 64
_LONGEST_RETRY_S = 60.0
WAITING_SHARE = 0.5
"""Share of a request's time that it may spend waiting; the rest is for decoding."""
STRETCH = 1.25
"""Largest duration of a request, as a multiple of its duration on an idle server, if that exceeds
its limit."""
_DONE_SHARE = 0.25
"""Share of the work that running requests are assumed to have done if it is unknown. A share that
is too small refuses some requests for a moment; one too large accepts a whole burst."""
_FORGET_S = 10.0
"""Seconds after which the measured pace is forgotten, if the queue is empty and nothing was
taken."""


class Expiring(Protocol):
    """An item of the queue; it has a deadline and can end while it waits."""

    @property
    def deadline(self) -> float:
        """The time by which it must have ended (monotonic)."""
        ...

    def expire(self) -> bool:
        """Whether it has ended. If it is overdue, it fails now."""
        ...


Item = TypeVar("Item", bound=Expiring)


class RequestQueue(Generic[Item]):
    """A bounded queue, oldest first; ended and overdue requests are removed.

    A request that would end too late is refused at once: it would only delay others. The queue
    predicts the end from the pace of the last takes and the duration of decoding. No request is
    refused for this while the queue is empty or the decoders have room.
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
        self._full = False
        """Whether the last take ended because a decoder had no room for the next request."""
        self._running: dict[Item, float] = {}
        """The requests that decoders have taken and not ended, each with the time of its take."""
        self._durations: deque[float] = deque(maxlen=_ENDS)
        """Seconds from take to end of the last requests that were decoded to their end."""
        self._taken_at = 0.0
        self._next_look = 0.0
        self._closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, items: Sequence[Item], max_wait_s: float | None = None) -> None:
        """Add requests, all or none. Raises OverloadedError, or NotReadyError once closed.

        `max_wait_s` bounds the predicted seconds until the last of the new requests has been
        decoded, as far as other requests cause them: `STRETCH` times the duration without others
        is always allowed. The bound applies beside the share of their deadline that they may spend
        waiting; None sets no bound.
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
                    len(self._waiting) * self._interval_s(),
                )
            if not self._waiting:
                self._forget_pace()
            else:
                self._check_end(items, max_wait_s)
            self._waiting.extend(items)
            self._changed.notify_all()

    def put_back(self, item: Item) -> None:
        """Put back requests that were decoded before, ahead of all others; the bound does not
        apply."""
        with self._changed:
            self._waiting.appendleft(item)
            self._changed.notify_all()

    def note_end(self, item: Item, *, decoded: bool) -> None:
        """Note that a decoder has ended a request that it took. `decoded` requests, which came to
        their end, show how long decoding takes."""
        with self._changed:
            began = self._running.pop(item, None)
            if decoded and began is not None:
                self._durations.append(time.monotonic() - began)

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
            chosen: bool | None = True
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
            self._full = chosen is None
            if taken:
                now = time.monotonic()
                self._running.update(dict.fromkeys(taken, now))
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

    def _check_end(self, items: Sequence[Item], max_wait_s: float | None) -> None:
        """Raise OverloadedError if new requests would end too late for the first of their deadlines
        or for this `max_wait_s`."""
        interval_s = self._interval_s()
        wait_s = len(self._waiting) * interval_s
        alone_s = len(items) * interval_s + self._decode_s()
        left_s = min(item.deadline for item in items) - time.monotonic()
        waiting = f"{len(self._waiting)} {self._unit} wait, which takes about {wait_s:.1f} s"
        if 0 < WAITING_SHARE * left_s < wait_s:  # an overdue request fails by itself
            self._refuse(
                f"{waiting}, too long for a request that must end in {left_s:.1f} s", wait_s
            )
        if left_s > 0 and max_wait_s is not None and wait_s > 0:
            end_s = wait_s + alone_s
            if end_s > max(max_wait_s, STRETCH * alone_s):
                self._refuse(
                    f"{waiting}; the answer would come in about {end_s:.1f} s, too late for a "
                    f"request that may wait {max_wait_s:g} s",
                    wait_s,
                )

    def _forget_pace(self) -> None:
        """Forget an old pace: after a pause the load may be of another kind."""
        if time.monotonic() - self._taken_at > _FORGET_S:
            self._takes.clear()
            self._left_at = None

    @property
    def _pace_seen(self) -> bool:
        """Whether as many requests have been taken as run at once, so that the takes show the
        pace."""
        return sum(count for _, count in self._takes) >= max(1, len(self._running))

    def _interval_s(self) -> float:
        """Estimated seconds between the takes of two waiting requests; 0 while the decoders have
        room or nothing is known."""
        if self._pace_seen:
            seconds = sum(interval for interval, _ in self._takes)
            if self._left_at is not None:
                seconds += time.monotonic() - self._left_at
            return seconds / sum(count for _, count in self._takes)
        # Little's law: this many requests leave in the time that each one takes.
        return self._decode_s() / len(self._running) if self._full and self._running else 0.0

    def _decode_s(self) -> float:
        """Estimated seconds from take to end; 0 if nothing is known."""
        ended_s = sum(self._durations) / max(1, len(self._durations))
        if self._pace_seen or not self._running:
            return ended_s
        # The load has just risen: finished requests were faster than running ones.
        age_s = time.monotonic() - sum(self._running.values()) / len(self._running)
        return max(ended_s, age_s / _DONE_SHARE)

    def _refuse(self, reason: str, wait_s: float) -> NoReturn:
        error = OverloadedError(f"{reason}; try again later")
        error.retry_after_s = min(max(wait_s, OverloadedError.retry_after_s), _LONGEST_RETRY_S)
        raise error
