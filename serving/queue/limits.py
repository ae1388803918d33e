"""Limits of a batch, and the demand of a work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from serving.search.options import Group


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Limits of one batch."""

    max_rows: int = 32
    """Largest number of sentences."""
    max_tokens: int = 2048
    """Largest number of rows times tokens of the longest source, which includes padding."""
    max_cache_bytes: int = 2 * 2**30
    """Largest size of the cache in bytes in the worst case, in which no two beams share a slot."""

    def shared(self, batches: int, devices: int) -> BatchLimits:
        """The limits of each of so many batches, if these are the limits of a device: batches on
        the same device share the memory of its caches."""
        return replace(self, max_cache_bytes=self.max_cache_bytes // -(-batches // devices))


GPU_LIMITS = BatchLimits(max_rows=256, max_tokens=16_384)
"""Limits on a GPU, where a step of 256 rows takes hardly longer than one of 32. On a CPU, 32 rows
are enough to keep it busy."""


def usual_limits(device: str) -> BatchLimits:
    """The default limits for a device (`cpu`, `cuda`, `tensorrt`).

    Engines of TensorRT are built for batches of the CPU's size.
    """
    return GPU_LIMITS if device == "cuda" else BatchLimits()


@dataclass(frozen=True, order=True)
class Demand:
    """The share of a batch that one work needs."""

    group: Group
    """Rows of one group can share a batch."""
    source_length: int
    """Source length in ids, eos included."""
    slots: int
    """Upper bound of the cache slots of a row."""
    rows: int = 1
