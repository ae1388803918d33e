"""Loads encoders as a preset requires."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.folder import parse_manifest
from serving.encoding.reader import TextReader
from serving.fastest import fastest
from serving.runtime.device import computes_on_cpu
from serving.runtime.gpu.cuda_switches import MOST_STREAMS
from serving.threads import Preset

_PROBE = "1 2 3"


def load_reader(folder: Path, preset: Preset, threads: int) -> TextReader:
    """Load an encoder's bundle. For throughput it reads a batch on each thread, for latency one
    batch on as many threads as are fastest for a short text, and on a GPU as many batches as it has
    streams for. Raises BundleError."""
    if not computes_on_cpu(parse_manifest(folder)):
        return TextReader(folder, threads=1, workers=MOST_STREAMS)
    if preset == "throughput":
        return TextReader(folder, threads=1, workers=threads)
    return fastest(
        lambda count: TextReader(folder, threads=count),
        lambda reader: reader.read([_PROBE]),
        threads,
        "read",
        folder,
    )
