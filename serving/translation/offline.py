"""Decodes a complete list of sentences in batches of similar length, one after another or by
several workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from serving.errors import DeviceMemoryError
from serving.queue.decoder import BatchRoom
from serving.queue.limits import BatchLimits, Demand
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.stepper import CacheCosts, Stepper
from serving.translation.texts import demand


def fill_batches(
    demands: dict[int, Demand], sizes: CacheCosts, limits: BatchLimits
) -> list[list[int]]:
    """Keys in batches of one group and similar length, within the limits."""
    batches: list[list[int]] = []
    room, group = BatchRoom(sizes, limits), None
    for key in sorted(demands, key=demands.__getitem__):
        demand = demands[key]
        if demand.group != group or not room.admit(demand):
            room, group = BatchRoom(sizes, limits), demand.group
            room.hold(demand)
            batches.append([])
        batches[-1].append(key)
    return batches


def share_out(demands: dict[int, Demand], workers: int) -> list[dict[int, Demand]]:
    """Divide sentences into one share per worker, each of sentences of similar length. All shares
    have about equally many source ids, because short sentences end sooner."""
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

    Several workers run several batches at once, each on its own thread; few sentences are divided
    among all workers. The results are the same, because no sentence depends on its batch. A batch
    that does not fit into a device's memory is decoded in halves. Raises DeviceMemoryError for a
    sentence that does not fit alone.
    """
    limits = limits or BatchLimits()
    limits = replace(limits, max_cache_bytes=limits.max_cache_bytes // workers)
    demands = {key: demand(sentence, stepper) for key, sentence in sentences.items()}
    few = len(sentences) <= workers * limits.max_rows
    shares = share_out(demands, workers) if few else [demands]
    batches = [batch for share in shares for batch in fill_batches(share, stepper, limits)]

    def run(batch: list[int]) -> list[tuple[int, Finished]]:
        try:
            found = decode(stepper, [sentences[key] for key in batch])
        except DeviceMemoryError:
            half = len(batch) // 2
            if not half:
                raise
            return [*run(batch[:half]), *run(batch[half:])]
        return [(batch[finished.index], finished) for finished in found]

    if workers == 1 or len(batches) == 1:
        for batch in batches:
            yield from run(batch)
        return
    # The longest first: they end last.
    for results in _threads(workers).map(run, reversed(batches)):
        yield from results


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    """A pool of this many threads, which stay for later calls: the session of a GPU keeps buffers
    and CUDA graphs per thread and loses them when the thread ends."""
    return ThreadPoolExecutor(count, thread_name_prefix="offline")


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_threads.cache_clear)
