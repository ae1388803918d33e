"""Work in threads: apart from those that all requests share, and opening what is to be closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")


class Closable(Protocol):
    """A file, or what has one."""

    def close(self) -> object:
        """Close it, also if it is closed already."""


ClosableT = TypeVar("ClosableT", bound=Closable)

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


async def opened_in_thread(open_file: Callable[[], ClosableT]) -> ClosableT:
    """Open something in another thread with `open_file`. If this is cancelled meanwhile, even
    several times, it is closed as soon as it is open."""
    left = False
    files: list[ClosableT] = []

    def open_in_thread() -> ClosableT:
        files.append(open_file())
        if left:  # the second of the two sees what the other did
            files[0].close()
        return files[0]

    try:
        return await asyncio.to_thread(open_in_thread)
    except asyncio.CancelledError:
        left = True
        for file in files:
            file.close()
        raise
