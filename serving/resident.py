"""How much memory a process holds."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's numbers of what `mallopt` sets."""
_LEAST, _MOST = 128 << 10, 32 << 20
"""What glibc begins with as the size from which a block lies apart, and how far it lets that
grow."""


def resident_bytes(process: int | None = None) -> int:
    """Resident memory of a process, by default this one; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(process: int) -> int:
    """Memory of a process, in which what several processes share counts in parts: 1/n of what n of
    them hold; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Within the block what is large is allocated apart, so that it goes back to the system when it
    is freed: glibc raises the size by itself once such a block was freed, and then what only the
    start needs stays in heaps, below what lives on.

    Afterwards that size is what it would have come to, as requests need their buffers again and
    again. Other allocators are left alone.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        yield
        return
    set_option(_MMAP_THRESHOLD, _LEAST)
    try:
        yield
    finally:
        set_option(_MMAP_THRESHOLD, _MOST)
        set_option(_TRIM_THRESHOLD, 2 * _MOST)


def give_back() -> None:
    """Give memory that is free to the system at once, where its allocator can do so."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
