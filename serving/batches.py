"""Sentences in batches of like length, decoded one after the other or by several workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from serving.cache import most_slots
from serving.search import Finished, Sentence, Stepper, decode


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


def demand(sentence: Sentence, stepper: Stepper) -> Demand:
    """What decoding a sentence may take."""
    options, length = sentence.options, len(sentence.source)
    slots = most_slots(
        len(sentence.target_prefix),
        options.beam_size,
        options.max_steps(length),
        stepper.repack_every,
    )
    return Demand(options.beam_size, length, slots)


class BatchRoom:
    """Counts what a batch holds while it is put together."""

    def __init__(self, stepper: Stepper, limits: BatchLimits) -> None:
        self._stepper, self._limits = stepper, limits
        self._rows = 0
        self._largest = Demand(0, 0, 0)

    def admit(self, demand: Demand) -> bool:
        """Whether a row fits beside those admitted, in which case it is counted.

        The first always does: a sentence too large for any batch is refused before it gets here.
        """
        rows = self._rows + 1
        largest = Demand(
            demand.beam_size,
            max(self._largest.source_length, demand.source_length),
            max(self._largest.slots, demand.slots),
        )
        limits, length = self._limits, largest.source_length
        most_states = self._stepper.most_states
        if self._rows and not (
            demand.beam_size == self._largest.beam_size
            and (most_states is None or rows * demand.beam_size * length <= most_states)
            and rows <= limits.max_rows
            and rows * length <= limits.max_tokens
            and self._stepper.cache_bytes(rows, length, largest.slots) <= limits.max_cache_bytes
        ):
            return False
        self._rows, self._largest = rows, largest
        return True


def fill_batches(
    demands: dict[int, Demand], stepper: Stepper, limits: BatchLimits
) -> list[list[int]]:
    """Keys in batches of one beam size and like length, within the limits."""
    batches: list[list[int]] = []
    room = BatchRoom(stepper, limits)
    for key in sorted(demands, key=demands.__getitem__):
        if not batches or not room.admit(demands[key]):
            room = BatchRoom(stepper, limits)
            room.admit(demands[key])
            batches.append([])
        batches[-1].append(key)
    return batches


def decode_in_batches(
    stepper: Stepper,
    sentences: dict[int, Sentence],
    workers: int = 1,
    limits: BatchLimits | None = None,
) -> Iterator[tuple[int, Finished]]:
    """Decode sentences; yields the key of each with its result, a batch at a time.

    With several workers as many batches run at once, each on a thread of its own; few sentences
    are spread over all workers. The results are the same: no sentence depends on its batch.
    """
    limits = limits or BatchLimits()
    max_rows = max(1, min(limits.max_rows, -(-len(sentences) // workers)))
    limits = replace(limits, max_rows=max_rows, max_cache_bytes=limits.max_cache_bytes // workers)
    demands = {key: demand(sentence, stepper) for key, sentence in sentences.items()}
    batches = fill_batches(demands, stepper, limits)

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
