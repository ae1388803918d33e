"""What one batch may hold, what a piece of work asks for, and whether it fits beside the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from serving.search.beams.sentence import Group
from serving.search.stepper import CacheCosts


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """What one batch may hold."""

    max_rows: int = 32
    """Sentences."""
    max_tokens: int = 2048
    """Rows x longest source, padding included."""
    max_cache_bytes: int = 2 * 2**30
    """Memory of the cache, were every beam to go its own way until the last step."""


GPU_LIMITS = BatchLimits(max_rows=256, max_tokens=16_384)
"""A GPU takes hardly longer for a step of 256 rows than for one of 32, which keep a CPU busy."""


def usual_limits(device: str) -> BatchLimits:
    """What a batch may hold on a device (`cpu`, `cuda`, `tensorrt`) where nobody says otherwise.

    Engines of TensorRT are built for batches as large as the CPU's.
    """
    return GPU_LIMITS if device == "cuda" else BatchLimits()


@dataclass(frozen=True, order=True)
class Demand:
    """What one piece of work asks for."""

    beam_size: int
    source_length: int
    """Ids, eos included."""
    slots: int
    """A bound on the cache slots of a row."""
    shortlisted: bool = False
    rows: int = 1

    @cached_property
    def group(self) -> Group:
        """Rows of one group share a batch."""
        return Group(self.beam_size, self.shortlisted)


@dataclass
class BatchRoom:
    """Counts what is decoded at once while it is put together: batches, one for each group, that
    share the limits."""

    sizes: CacheCosts
    limits: BatchLimits
    _held: dict[Group, tuple[int, Demand]] = field(default_factory=dict, init=False)
    """Rows and the largest demands, by group."""

    @property
    def full(self) -> bool:
        """Whether no further row fits, however small."""
        return sum(rows for rows, _ in self._held.values()) >= self.limits.max_rows

    def hold(self, demand: Demand) -> None:
        """Count it, whether it fits or not."""
        self._held[demand.group] = self._with(demand)

    def admit(self, demand: Demand) -> bool:
        """Whether it fits beside what is held, in which case it is counted.

        The first always does: what is too large for any batch is refused before it gets here.
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
