"""Threads apart from those that all requests share, for work that may take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")

_LIMITERS: RunVar[dict[str, CapacityLimiter]] = RunVar("_LIMITERS")
_AT_ONCE = 4


async def on_threads_for(purpose: str, act: Callable[[], T]) -> T:
    """Call `act` in a thread; returns its result. At most four threads do so for one purpose, so
    that the usual threads stay free for everything else."""
    limiters = _LIMITERS.get(None)
    if limiters is None:
        limiters = {}
        _LIMITERS.set(limiters)
    limiter = limiters.setdefault(purpose, CapacityLimiter(_AT_ONCE))
    return await to_thread.run_sync(act, limiter=limiter)
