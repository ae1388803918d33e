"""Loads language models as a preset requires."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.folder import parse_manifest
from serving.fastest import fastest
from serving.generation.generator import Generator
from serving.queue.limits import BatchLimits
from serving.runtime.device import computes_on_cpu
from serving.runtime.gpu.cuda_switches import MOST_STREAMS
from serving.search.sampling_options import GenerationOptions
from serving.threads import Preset

_PROBE = "1 2 3"
_PROBE_ROWS: dict[Preset, int] = {"latency": 1, "throughput": 16}


def load_generator(
    folder: Path, preset: Preset, threads: int, limits: BatchLimits | None = None
) -> Generator:
    """Load a language model's bundle. It decodes one batch, with as many threads as are fastest for
    a short prompt, or for throughput with as many as are fastest for many prompts. On a GPU there
    are as many batches as it has streams for, which share the memory of `limits`, and threads
    matter little. Raises BundleError."""
    if not computes_on_cpu(parse_manifest(folder)):
        return Generator(folder, threads=1, workers=MOST_STREAMS, limits=limits)
    options = GenerationOptions(max_length=16, temperature=0.0)
    prompts = [_PROBE] * _PROBE_ROWS[preset]
    return fastest(
        lambda count: Generator(folder, threads=count, limits=limits),
        lambda generator: generator.generate(prompts, options),
        threads,
        f"generate {preset}",
        folder,
    )
