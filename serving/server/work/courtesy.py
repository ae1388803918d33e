"""What work that nobody waits for leaves to clients that do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anyio.lowlevel import RunVar

from serving.errors import NotReadyError, OverloadedError, ServingError
from serving.queue.ticket import HeldWork

_ATTENTION_S = 2.0
"""How long after a request of a client another one is likely."""
_REST = 4
_LONGEST_REST_S = 5.0
"""After a piece of work, while clients ask: so many times as long as it took, so that few requests
meet one."""
_LOOK_S = 0.01


def attentive(idle_s: float) -> bool:
    """Whether clients ask for something that they wait for, so many seconds after the last has:
    then one piece of work runs at a time, and a rest follows it."""
    return idle_s < _ATTENTION_S


@dataclass
class _Turnstile:
    """Lets the works of all requests in that nobody waits for; used on one event loop only."""

    inside: int = 0
    """Number of works that were queued and have not ended."""
    rested: float = 0.0
    """When the rest after the last one is over (monotonic)."""
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the request whose work is next; the others take turns behind it."""

    def is_open(self, at_once: int, idle_s: float) -> bool:
        """Whether one more may run, so many seconds after a client's last request."""
        if attentive(idle_s):
            return not self.inside and time.monotonic() >= self.rested
        return self.inside < at_once

    def leave(self, took_s: float) -> None:
        """Note that a work has ended, so many seconds after it was queued."""
        self.inside -= 1
        self.rested = time.monotonic() + min(_REST * took_s, _LONGEST_REST_S)


_TURNSTILE: RunVar[_Turnstile] = RunVar("_TURNSTILE")


async def hand_over(held: Sequence[HeldWork], idle_s: Callable[[], float]) -> None:
    """Queue the works of a request that nobody waits for, in order.

    While clients ask, one work of all such requests runs at a time, and a rest of four times as
    long follows it; otherwise as many run as leave room for a client. `idle_s` gives the seconds
    since a client's last request. A work that is refused for good ends with the error.
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
            # What came before is no wait for the scheduler.
            work.ticket.submitted = begin
            if not await _queued(work):
                continue
        turnstile.inside += 1

        def leave(_: BaseException | None, begin: float = begin) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(turnstile.leave, time.monotonic() - begin)

        work.ticket.when_done(leave)


async def _queued(work: HeldWork) -> bool:
    """Queue a work, once there is room for it; returns False if it has ended instead."""
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
