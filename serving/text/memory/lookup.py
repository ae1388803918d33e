"""Looks up the best segment of a memory for each of several sentences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from serving.text.memory.index import SegmentIndex
from serving.text.memory.segments import MemoryUse, Recalled, Segment, best_of, key_of

_SAME, _ALIKE = 50, 5
"""Most segments looked at: with an equal key, and with a similar key."""

Fetch = Callable[[Collection[int]], Mapping[int, Segment]]
"""Returns the segments with these numbers that exist."""


def lookup(
    index: SegmentIndex,
    fetch: Fetch,
    sentences: Sequence[str],
    threshold: float,
    languages: tuple[str, str],
) -> list[Recalled | None]:
    """The best segment of each sentence, or None if none reaches the threshold, in percent. A
    segment with the same key comes before one with a similar key. `fetch` is called at most
    once."""
    keys = list(map(key_of, sentences))
    found = {key: _candidates(index, key, threshold) for key in dict.fromkeys(keys)}
    numbers = {number for each in found.values() for _, number in each}
    segments = fetch(numbers) if numbers else {}
    return [
        best_of(
            sentence,
            [(likeness, segments[number]) for likeness, number in found[key] if number in segments],
            threshold,
            languages,
        )
        for sentence, key in zip(sentences, keys, strict=True)
    ]


def memory_of(
    segments: Sequence[Segment], languages: tuple[str, str], threshold: float
) -> MemoryUse:
    """A memory of segments that are given as a sequence."""
    index = SegmentIndex(key_of(segment.source) for segment in segments)

    def find(sentences: Sequence[str], at_least: float) -> list[Recalled | None]:
        return lookup(
            index, lambda numbers: {n: segments[n] for n in numbers}, sentences, at_least, languages
        )

    return MemoryUse(find, threshold)


def _candidates(index: SegmentIndex, key: str, threshold: float) -> list[tuple[float, int]]:
    same = index.exact(key, _SAME)
    return [(100.0, number) for number in same] or index.similar(key, threshold, _ALIKE)
