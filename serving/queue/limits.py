"""Sentences in batches of like length, decoded one after the other or by several workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from serving.search.beam import decode
from serving.search.prefix_tree import most_slots
from serving.search.sentence import Finished, Group, Sentence
from serving.search.stepper import CacheCosts, Stepper


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """What one batch may hold."""

    max_rows: int = 32
    """Sentences."""
    max_tokens: int = 2048
    """Rows x longest source, padding included."""
    max_cache_bytes: int = 2 * 2**30
    """Memory of the cache, were every beam to go its own way until the last step."""


@dataclass(frozen=True, order=True)
class Demand:
    """What one row asks for."""

    beam_size: int
    source_length: int
    """Ids, eos included."""
    slots: int
    """A bound on its cache slots."""
    shortlisted: bool = False

    @property
    def group(self) -> Group:
        """Rows of one group share a batch."""
        return Group(self.beam_size, self.shortlisted)


def demand(sentence: Sentence, sizes: CacheCosts) -> Demand:
    """What decoding a sentence may take."""
    options, length = sentence.options, len(sentence.source)
    slots = most_slots(
        len(sentence.target_prefix),
        options.beam_size,
        sentence.max_steps,
        sizes.repack_every,
    )
    return Demand(options.beam_size, length, slots, sentence.shortlisted)


class BatchRoom:
    """Counts what is decoded at once while it is put together: batches, one for each group, that
    share the limits."""

    def __init__(self, sizes: CacheCosts, limits: BatchLimits) -> None:
        self._sizes, self._limits = sizes, limits
        self._held: dict[Group, tuple[int, Demand]] = {}
        """Rows and the largest demands, by group."""

    @property
    def full(self) -> bool:
        """Whether no further row fits, however small."""
        return sum(rows for rows, _ in self._held.values()) >= self._limits.max_rows

    def hold(self, demand: Demand) -> None:
        """Count a row, whether it fits or not."""
        self._held[demand.group] = self._with(demand)

    def admit(self, demand: Demand) -> bool:
        """Whether a row fits beside those held, in which case it is counted.

        The first always does: a sentence too large for any batch is refused before it gets here.
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
        return rows + 1, replace(demand, source_length=length, slots=slots)

    def _fits(self, held: dict[Group, tuple[int, Demand]]) -> bool:
        limits, sizes = self._limits, self._sizes
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


def fill_batches(
    demands: dict[int, Demand], sizes: CacheCosts, limits: BatchLimits
) -> list[list[int]]:
    """Keys in batches of one beam size and like length, within the limits."""
    batches: list[list[int]] = []
    room, beam_size = BatchRoom(sizes, limits), 0
    for key in sorted(demands, key=demands.__getitem__):
        demand = demands[key]
        if demand.beam_size != beam_size or not room.admit(demand):
            room, beam_size = BatchRoom(sizes, limits), demand.beam_size
            room.hold(demand)
            batches.append([])
        batches[-1].append(key)
    return batches


def share_out(demands: dict[int, Demand], workers: int) -> list[dict[int, Demand]]:
    """A share for each worker: sentences of like length, each share with about as many source ids
    as any other, since short sentences are done sooner."""
    shares: list[dict[int, Demand]] = [{} for _ in range(workers)]
    total, before = sum(demand.source_length for demand in demands.values()), 0
    for key in sorted(demands, key=demands.__getitem__):
        length = demands[key].source_length
        shares[(2 * before + length) * workers // (2 * total)][key] = demands[key]
        before += length
    return shares


def decode_in_batches(
    stepper: Stepper,
    sentences: dict[int, Sentence],
    workers: int = 1,
    limits: BatchLimits | None = None,
) -> Iterator[tuple[int, Finished]]:
    """Decode sentences; yields the key of each with its result, a batch at a time.

    With several workers as many batches run at once, each on a thread of its own; few sentences
    are shared out to all workers. The results are the same: no sentence depends on its batch.
    """
    limits = limits or BatchLimits()
    limits = replace(limits, max_cache_bytes=limits.max_cache_bytes // workers)
    demands = {key: demand(sentence, stepper) for key, sentence in sentences.items()}
    few = len(sentences) <= workers * limits.max_rows
    shares = share_out(demands, workers) if few else [demands]
    batches = [batch for share in shares for batch in fill_batches(share, stepper, limits)]

    def run(batch: list[int]) -> list[tuple[int, Finished]]:
        found = decode(stepper, [sentences[key] for key in batch])
        return [(batch[finished.index], finished) for finished in found]

    if workers == 1 or len(batches) == 1:
        for batch in batches:
            yield from run(batch)
        return
    with ThreadPoolExecutor(workers) as pool:
        # The longest first: they end last.
        for results in pool.map(run, reversed(batches)):
            yield from results
