"""Encoders as a preset wants them."""

from __future__ import annotations

from pathlib import Path

from serving.encoding.reader import TextReader
from serving.fastest import fastest
from serving.threads import Preset

_PROBE = "1 2 3"


def load_reader(folder: Path, preset: Preset, threads: int) -> TextReader:
    """An encoder's bundle: for throughput a batch on each thread, for latency one batch on as many
    threads as are fastest for a short text; raises BundleError."""
    if preset == "throughput":
        return TextReader(folder, threads=1, workers=threads)
    return fastest(
        lambda count: TextReader(folder, threads=count),
        lambda reader: reader.read([_PROBE]),
        threads,
        "read",
        folder,
    )
