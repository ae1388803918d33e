"""How models share the processors: for the latency of one request, or for many requests at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from serving.batches import BatchLimits
from serving.generation_options import GenerationOptions
from serving.generator import Generator
from serving.isolated import IsolatedTranslator
from serving.threads import Preset
from serving.translator import Translator

MOST_WORKERS = 8
"""Batches of a model decoded at once: on threads of one process Python's tenth of a step is done
for one at a time, and processes take memory each."""
_PROBE, _PROBES = "1 2 3", 5
_PROBE_ROWS: dict[Preset, int] = {"latency": 1, "throughput": 16}
_GAIN = 1.1
"""More threads must be faster by that factor: where other processes want them, they cost dearly."""

Loaded = TypeVar("Loaded", Translator, Generator)


def load_translator(
    folder: Path, preset: Preset, threads: int, limits: BatchLimits | None = None
) -> Translator:
    """A translation bundle with as many workers as the preset wants; raises BundleError.

    `throughput`: as many batches are decoded at once as there are threads. `latency`: one batch,
    whose products are shared by as many threads as are found to be fastest for one short text.
    """
    if preset == "throughput":
        workers = _workers(preset, threads)
        return Translator(folder, threads=threads, workers=workers, limits=limits)
    return fastest(
        lambda count: Translator(folder, threads=count, limits=limits),
        lambda translator: translator.warm_up(),
        threads,
    )


def load_isolated_translator(
    folder: Path, preset: Preset, threads: int, limits: BatchLimits | None = None
) -> IsolatedTranslator:
    """`load_translator`, each worker in a process of its own."""
    workers = _workers(preset, threads)
    return IsolatedTranslator(
        folder,
        threads=threads // workers,
        workers=workers,
        limits=limits,
        tune=preset == "latency",
    )


def load_generator(folder: Path, preset: Preset, threads: int) -> Generator:
    """A language model's bundle: one batch, with as many threads as are fastest for a short prompt,
    or for throughput for many; raises BundleError."""
    options = GenerationOptions(max_length=16, temperature=0.0)
    prompts = [_PROBE] * _PROBE_ROWS[preset]
    return fastest(
        lambda count: Generator(folder, threads=count),
        lambda generator: generator.generate(prompts, options),
        threads,
    )


def fastest(
    load: Callable[[int], Loaded], probe: Callable[[Loaded], object], threads: int
) -> Loaded:
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


def _workers(preset: Preset, threads: int) -> int:
    return min(threads, MOST_WORKERS) if preset == "throughput" else 1


def _seconds(loaded: Loaded, probe: Callable[[Loaded], object]) -> float:
    probe(loaded)  # the first call allocates
    times = []
    for _ in range(_PROBES):
        start = time.perf_counter()
        probe(loaded)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
