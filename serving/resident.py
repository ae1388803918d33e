"""How much memory a process holds."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


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


def give_back() -> None:
    """Give memory that is free to the system at once, where its allocator can do so."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
