"""How many threads a process may use, and to what end."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

Preset = Literal["latency", "throughput"]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """Processors that this process may run on, and no more than its container's quota of time."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(processors, _quota() or processors)


def keep_numpy_single() -> None:
    """Let NumPy, where it is not loaded yet, start no threads: its products are small here, and
    for some time after their start its threads spin."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _quota() -> int | None:
    """Processors' worth of time that a container may use (cgroups v2); None is no bound."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return None
