"""Words of a sentence and of its translation, and which belongs to which."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from serving.alignment import Link, Span


def overlapping(words: Sequence[Span], span: Span) -> range:
    """Numbers of the words, in ascending order, that share characters with a span."""
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, span[1], key=lambda word: word[0])))


def linked_words(
    links: Sequence[Link], sources: Sequence[Span], targets: Sequence[Span]
) -> dict[int, int]:
    """The source word that each target word is linked to, for those that are."""
    best: dict[int, tuple[float, int]] = {}
    for link in links:
        source = overlapping(sources, link.source)
        for target in overlapping(targets, link.target) if source else ():
            best[target] = max(best.get(target, (-1.0, 0)), (link.probability, source[0]))
    return {target: source for target, (_, source) in best.items()}


def completed_words(linked: dict[int, int], sources: int, targets: int) -> list[int]:
    """The source word of each target word.

    A target word without a link has that of the nearest word with one; without any link, words
    correspond by their place.
    """
    if not linked:
        return [target * sources // targets for target in range(targets)]
    numbers = sorted(linked)
    return [linked[_nearest(numbers, target)] for target in range(targets)]


def _nearest(numbers: Sequence[int], number: int) -> int:
    """The nearest of ascending numbers; of two, the higher: an article goes with its noun."""
    place = bisect_left(numbers, number)
    around = numbers[max(0, place - 1) : place + 1]
    return min(reversed(around), key=lambda candidate: abs(candidate - number))
