"""Memory use of a process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameter numbers of glibc's `mallopt`."""
_LEAST, _MOST = 128 << 10, 32 << 20
"""glibc's initial threshold for separate allocation of a block, and its largest automatic value."""


def resident_bytes(process: int | None = None) -> int:
    """Resident memory of a process in bytes, by default this one; 0 if the system does not report
    it."""
    try:
        pages = int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(process: int) -> int:
    """Proportional memory of a process in bytes: memory shared by n processes counts 1/n; 0 if the
    system does not report it."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Within the block, allocate large blocks separately, so that they return to the system when
    freed. By itself glibc raises the threshold once such a block was freed; then memory that only
    the start needs would stay in heaps below longer-lived data.

    Afterwards the threshold is what glibc would have raised it to, since requests need their
    buffers repeatedly. Other allocators are not changed.
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
    """Return free memory to the system at once, if the allocator supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
