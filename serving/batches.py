"""Sentences in batches of like length, decoded one after the other or by several workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from serving.search import Finished, Sentence, Stepper, decode

MAX_BATCH_ROWS = 32
MAX_BATCH_TOKENS = 2048
"""Rows x longest source of one batch, padding included."""


def batch_by_length(
    sentences: dict[int, Sentence], max_rows: int = MAX_BATCH_ROWS
) -> list[list[int]]:
    """Keys in batches of one beam size and like length, within the row and token limits."""
    sizes = {key: (s.options.beam_size, len(s.source)) for key, s in sentences.items()}
    return fill_batches(sizes, max_rows)


def fill_batches(
    sizes: dict[int, tuple[int, int]], max_rows: int = MAX_BATCH_ROWS
) -> list[list[int]]:
    """Keys in batches within the limits, given the beam size and length of each."""
    batches: list[list[int]] = []
    for key in sorted(sizes, key=sizes.__getitem__):
        batch, (beam_size, length) = batches[-1] if batches else [], sizes[key]
        fits = (
            batch
            and len(batch) < max_rows
            and length * (len(batch) + 1) <= MAX_BATCH_TOKENS
            and beam_size == sizes[batch[0]][0]
        )
        if fits:
            batch.append(key)
        else:
            batches.append([key])
    return batches


def decode_in_batches(
    stepper: Stepper, sentences: dict[int, Sentence], workers: int = 1
) -> Iterator[tuple[int, Finished]]:
    """Decode sentences; yields the key of each with its result, a batch at a time.

    With several workers as many batches run at once, each on a thread of its own; few sentences
    are spread over all workers. The results are the same: no sentence depends on its batch.
    """
    max_rows = min(MAX_BATCH_ROWS, -(-len(sentences) // workers))
    batches = batch_by_length(sentences, max(1, max_rows))

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
