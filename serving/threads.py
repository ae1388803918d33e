"""How many threads a process may use, and to what end."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

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


T = TypeVar("T")
_PROBES = 5
_GAIN = 1.1
"""More threads must be faster by that factor: where other processes want them, they cost dearly."""


def fastest(load: Callable[[int], T], probe: Callable[[T], object], threads: int) -> T:
    """What is loaded with 1, 2, 4, ... up to `threads` threads, the fastest at its probe."""
    counts = [1 << n for n in range(threads.bit_length()) if 1 << n < threads] + [threads]
    best = load(counts[0])
    least = _seconds(best, probe)
    for count in counts[1:]:
        other = load(count)
        seconds = _seconds(other, probe)
        if seconds * _GAIN < least:
            best, least = other, seconds
    return best


def _seconds(loaded: T, probe: Callable[[T], object]) -> float:
    probe(loaded)  # the first call allocates
    times = []
    for _ in range(_PROBES):
        start = time.perf_counter()
        probe(loaded)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
