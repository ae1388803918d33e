"""Translation bundles as a preset wants them: for the latency of one request, or for many."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.manifest import parse_manifest
from serving.queue.limits import BatchLimits
from serving.runtime.cuda_device import MOST_STREAMS
from serving.runtime.device import batches_at_once, computes_on_cpu
from serving.threads import Preset, fastest
from serving.translation.isolated import IsolatedTranslator
from serving.translation.translator import Translator

MOST_WORKERS = 8
"""Batches of a model decoded at once: on threads of one process Python's tenth of a step is done
for one at a time, and processes take memory each."""


def load_translator(
    folder: Path, preset: Preset, threads: int, limits: BatchLimits | None = None
) -> Translator:
    """A translation bundle with as many workers as the preset wants; raises BundleError.

    `throughput`: as many batches are decoded at once as there are threads. `latency`: one batch,
    whose products are shared by as many threads as are found to be fastest for one short text.
    A GPU computes as many batches at a time as it has streams for.
    """
    if not computes_on_cpu(parse_manifest(folder)):
        return Translator(folder, threads=1, workers=MOST_STREAMS, limits=limits)
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
) -> IsolatedTranslator | Translator:
    """`load_translator`, each worker in a process of its own.

    On a GPU there is one, since processes do not compute there at once: where it has streams for
    several batches, these are decoded by threads of this process.
    """
    manifest = parse_manifest(folder)
    on_cpu = computes_on_cpu(manifest)
    if not on_cpu and batches_at_once(manifest, MOST_STREAMS) > 1:
        return load_translator(folder, preset, threads, limits)
    workers = _workers(preset, threads) if on_cpu else 1
    return IsolatedTranslator(
        folder,
        threads=threads // workers,
        workers=workers,
        limits=limits,
        tune=on_cpu and preset == "latency",
    )


def _workers(preset: Preset, threads: int) -> int:
    return min(threads, MOST_WORKERS) if preset == "throughput" else 1
