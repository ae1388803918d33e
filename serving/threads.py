"""How many threads a process may use, and to what end."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

Preset = Literal["latency", "throughput"]
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where a container's quota of time stands (cgroups v2)."""


def default_threads(quota: Path = CPU_QUOTA) -> int:
    """Processors that this process may run on, and no more than the quota of time in a file."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(processors, _processors_in(quota) or processors)


def keep_numpy_single() -> None:
    """Let NumPy, where it is not loaded yet, start no threads: its products are small here, and
    for some time after their start its threads spin."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _processors_in(file: Path) -> int | None:
    """Processors' worth of time that a container may use; None is no bound."""
    try:
        quota, period = file.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return None
