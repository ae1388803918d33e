"""The latency of a server's clients without and beside background work, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from bench.machine.load import Load, poisson_load
from bench.reports.report import table_head, table_line
from bench.systems.processes.repetitions import Progress

_RATE = 3.0
"""Requests per second of the clients."""
_WARM_UP_S = 5.0


@dataclass(frozen=True)
class LoadsBeside:
    """The loads that the clients measured, one entry per repetition."""

    alone: list[Load]
    beside: dict[str, list[Load]]
    """The loads by the name of the work that ran beside them."""


def loads_beside(
    url: str,
    bodies: Sequence[dict[str, Any]],
    works: Mapping[str, Callable[[], AbstractContextManager[None]]],
    seconds: float,
    repetitions: int,
    progress: Progress,
) -> LoadsBeside:
    """Send `bodies` to `url` as Poisson arrivals, each time for `seconds` seconds: in turns without
    other work, and within each of the contexts, in which the named work runs."""
    found = LoadsBeside([], {name: [] for name in works})
    poisson_load(url, bodies, _RATE, min(seconds, _WARM_UP_S), 0)
    for repetition in range(repetitions):
        progress(f"latency: repetition {repetition + 1} of {repetitions}")
        found.alone.append(poisson_load(url, bodies, _RATE, seconds, repetition))
        for name, work in works.items():
            with work():
                found.beside[name].append(poisson_load(url, bodies, _RATE, seconds, repetition))
    return found


def latency_lines(alone: str, found: LoadsBeside, seconds: float) -> list[str]:
    """The table: p50 and p95 of each run of `seconds`, and below them the ratios of p95 in the
    pairs of one repetition. `alone` is the name of the row without any work."""
    columns = ["clients of a server", "requests", "p50, ms", "p95, ms (min-max)", "failed"]
    lines = table_head(columns)
    for name, loads in ((alone, found.alone), *found.beside.items()):
        p95 = [load.percentile(95) for load in loads]
        p50 = statistics.median(load.percentile(50) for load in loads)
        count = sum(len(load.latencies_ms) for load in loads)
        middle = f"{statistics.median(p95):.0f} ({min(p95):.0f}-{max(p95):.0f})"
        failed = sum(load.failed for load in loads)
        lines.append(table_line([name, str(count), f"{p50:.0f}", middle, str(failed)]))
    for name, loads in found.beside.items():
        pairs = zip(loads, found.alone, strict=True)
        ratios = [b.percentile(95) / a.percentile(95) for b, a in pairs]
        shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        what = "ratio of the pairs" if len(found.beside) == 1 else f"ratio of the pairs, {name}"
        lines.append(table_line([what, "", "", shown, ""]))
    return [
        f"{_RATE:g} requests/s of one sentence each, for {seconds:g} s; latency from the "
        "moment when a request is due.",
        "",
        *lines,
    ]
