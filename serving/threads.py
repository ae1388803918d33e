"""The number of threads that a process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

Preset = Literal["latency", "throughput"]
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""File with a container's quota of processor time (cgroups v2)."""


def default_threads(quota: Path = CPU_QUOTA) -> int:
    """Number of processors that this process may run on, at most the quota of time in a file."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(processors, _processors_in(quota) or processors)


def keep_numpy_single() -> None:
    """Keep NumPy, if it is not loaded yet, from starting threads: its products here are small, and
    its threads spin for some time after their start."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _processors_in(file: Path) -> int | None:
    """Number of processors that a container's quota of time corresponds to; None if there is no
    limit."""
    try:
        quota, period = file.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return None
