"""Limits of a batch, the demand of a work, and whether a work fits into a batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from serving.search.options import Group

if TYPE_CHECKING:  # it brings NumPy, which settings do not need
    from serving.search.stepper import CacheCosts


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Limits of one batch."""

    max_rows: int = 32
    """Number of sentences."""
    max_tokens: int = 2048
    """Rows x longest source, in tokens, padding included."""
    max_cache_bytes: int = 2 * 2**30
    """Bytes of the cache in the worst case: no two beams share a slot."""


GPU_LIMITS = BatchLimits(max_rows=256, max_tokens=16_384)
"""On a GPU a step of 256 rows takes hardly longer than one of 32, which keep a CPU busy."""


def usual_limits(device: str) -> BatchLimits:
    """The default limits for a device (`cpu`, `cuda`, `tensorrt`).

    Engines of TensorRT are built for batches of the CPU's size.
    """
    return GPU_LIMITS if device == "cuda" else BatchLimits()


@dataclass(frozen=True, order=True)
class Demand:
    """What one work needs of a batch."""

    beam_size: int
    source_length: int
    """Source length in ids, eos included."""
    slots: int
    """Upper bound of the cache slots of a row."""
    shortlisted: bool = False
    rows: int = 1

    @cached_property
    def group(self) -> Group:
        """Rows of one group can share a batch."""
        return Group(self.beam_size, self.shortlisted)


@dataclass
class BatchRoom:
    """Counts demands while a batch is put together. There is one batch for each group; all of them
    share the limits."""

    sizes: CacheCosts
    limits: BatchLimits
    _held: dict[Group, tuple[int, Demand]] = field(default_factory=dict, init=False)
    """Number of rows and largest demands, by group."""

    @property
    def full(self) -> bool:
        """Whether not even the smallest row fits."""
        return sum(rows for rows, _ in self._held.values()) >= self.limits.max_rows

    def hold(self, demand: Demand) -> None:
        """Count a demand, whether or not it fits."""
        self._held[demand.group] = self._with(demand)

    def admit(self, demand: Demand) -> bool:
        """Count a demand if it fits beside those held; returns whether it does.

        The first demand always fits: one that is too large for any batch is refused earlier.
        """
        held = self._held | {demand.group: self._with(demand)}
        if self._held and not self._fits(held):
            return False
        self._held = held
        return True

    def _with(self, demand: Demand) -> tuple[int, Demand]:
        rows, largest = self._held.get(demand.group, (0, demand))
        length = max(largest.source_length, demand.source_length)
        slots = max(largest.slots, demand.slots)
        return rows + demand.rows, replace(demand, source_length=length, slots=slots)

    def _fits(self, held: dict[Group, tuple[int, Demand]]) -> bool:
        limits, sizes = self.limits, self.sizes
        rows = tokens = states = cache_bytes = 0
        for count, largest in held.values():
            rows += count
            tokens += count * largest.source_length
            states += count * largest.source_length * largest.beam_size
            cache_bytes += sizes.cache_bytes(count, largest.source_length, largest.slots)
        return (
            rows <= limits.max_rows
            and tokens <= limits.max_tokens
            and (sizes.most_states is None or states <= sizes.most_states)
            and cache_bytes <= limits.max_cache_bytes
        )
