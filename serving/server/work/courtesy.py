"""Keeps work that nobody waits for from delaying clients that wait, and sends it again after errors
that pass."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anyio.lowlevel import RunVar

from serving.errors import (
    DeadlineExceededError,
    DecoderLostError,
    DeviceMemoryError,
    NotReadyError,
    OverloadedError,
    RateLimitedError,
    ServingError,
    StoreUnavailableError,
)
from serving.queue.ticket import HeldWork

_ATTENTION_S = 2.0
"""Seconds after a client's request during which another one is likely."""
_REST = 4
_LONGEST_REST_S = 5.0
"""Longest pause in seconds after a piece of work while clients send requests; it is `_REST` times
as long as the work took, so that few requests meet such work."""
_LOOK_S = 0.01
PASSING = (
    OverloadedError,
    RateLimitedError,
    DeadlineExceededError,
    DecoderLostError,
    StoreUnavailableError,
)
"""Errors after which a piece of work is sent again."""
FATAL = (DecoderLostError, DeviceMemoryError)
"""Those of them by which decoding itself failed; the piece of work may be the cause."""
_MOST_FAILURES = 3
_PAUSE_S = 1.0
"""Seconds before a refused piece of work is sent again, if the error gives no time."""
_LONGEST_PAUSE_S = 30.0


async def pause_after(error: ServingError) -> None:
    """Wait before a piece of work is sent again after one of the `PASSING` errors."""
    await asyncio.sleep(min(error.retry_after_s or _PAUSE_S, _LONGEST_PAUSE_S))


@dataclass
class Tries:
    """Whether a piece of work is sent again after one of the `PASSING` errors."""

    own: tuple[type[ServingError], ...] = FATAL
    """Errors that count, because the work may be their cause."""
    failures: int = 0
    """How often one of them has come."""

    async def may_go_again(self, error: ServingError) -> bool:
        """Return True after a pause, or False at once if the work has failed three times by errors
        that it may be the cause of."""
        self.failures += isinstance(error, self.own)
        if self.failures == _MOST_FAILURES:
            return False
        await pause_after(error)
        return True


def attentive(idle_s: float) -> bool:
    """Whether clients are sending requests that they wait for, `idle_s` seconds after the last one:
    then one piece of work runs at a time, followed by a pause."""
    return idle_s < _ATTENTION_S


@dataclass
class _Turnstile:
    """Admits the works of all requests that nobody waits for; used on one event loop only."""

    inside: int = 0
    """Number of works that were queued and have not ended."""
    rested: float = 0.0
    """Time when the pause after the last work ends (monotonic)."""
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the request whose work is next; the others wait for their turn."""

    def is_open(self, at_once: int, idle_s: float) -> bool:
        """Whether one more work may run, `idle_s` seconds after a client's last request."""
        if attentive(idle_s):
            return not self.inside and time.monotonic() >= self.rested
        return self.inside < at_once

    def leave(self, took_s: float) -> None:
        """Record that a work has ended, `took_s` seconds after it was queued."""
        self.inside -= 1
        self.rested = time.monotonic() + min(_REST * took_s, _LONGEST_REST_S)


_TURNSTILE: RunVar[_Turnstile] = RunVar("_TURNSTILE")


async def hand_over(held: Sequence[HeldWork], idle_s: Callable[[], float]) -> None:
    """Queue the works of a request that nobody waits for, in order.

    While clients send requests, one work of all such requests runs at a time, followed by a pause
    four times as long. Otherwise as many run as leave room for a client. `idle_s` returns the
    seconds since a client's last request. A work that is refused permanently ends with the error.
    """
    turnstile = _TURNSTILE.get(None)
    if turnstile is None:
        turnstile = _Turnstile()
        _TURNSTILE.set(turnstile)
    loop = asyncio.get_running_loop()
    for work in held:
        async with turnstile.first:
            while not turnstile.is_open(work.at_once, idle_s()):
                await asyncio.sleep(_LOOK_S)
            begin = time.monotonic()
            # The time before this does not count as waiting in the scheduler.
            work.ticket.submitted = begin
            if not await _queued(work):
                continue
        turnstile.inside += 1

        def leave(_: BaseException | None, begin: float = begin) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(turnstile.leave, time.monotonic() - begin)

        work.ticket.when_done(leave)


async def _queued(work: HeldWork) -> bool:
    """Queue a work as soon as there is room for it; returns False if it has ended instead."""
    while not work.ticket.done:
        try:
            work.queue()
            return True
        except ServingError as error:
            if isinstance(error, NotReadyError) or not isinstance(error, OverloadedError):
                work.ticket.fail(error)
            else:
                await asyncio.sleep(error.retry_after_s)
    return False
