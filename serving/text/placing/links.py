"""Word links between a sentence and its translation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from serving.text.alignment import Link, Span

_ALIKE = (".!?…", "\"'„“”«»‚‘’")  # noqa: RUF001


def overlapping(words: Sequence[Span], span: Span) -> range:
    """Indices of the words that overlap a span, ascending."""
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, span[1], key=lambda word: word[0])))


def linked_words(
    links: Sequence[Link], sources: Sequence[Span], targets: Sequence[Span]
) -> dict[int, int]:
    """The source word of each linked target word, by index."""
    best: dict[int, tuple[float, int]] = {}
    for link in links:
        source = overlapping(sources, link.source)
        for target in overlapping(targets, link.target) if source else ():
            best[target] = max(best.get(target, (-1.0, 0)), (link.probability, source[0]))
    return {target: source for target, (_, source) in best.items()}


def with_signs(
    linked: dict[int, int], sources: Sequence[str], targets: Sequence[str]
) -> dict[int, int]:
    """The links, with punctuation linked by kind: attention is unreliable for punctuation."""
    like = {
        target: source
        for target, source in linked.items()
        if _kind(targets[target]) == _kind(sources[source])
    }
    free: dict[str, list[int]] = {}
    for number in sorted(set(range(len(sources))) - set(like.values())):
        free.setdefault(_kind(sources[number]), []).append(number)
    signs = [n for n, word in enumerate(targets) if not word[0].isalnum() and n not in like]
    found = {
        number: free[_kind(targets[number])] for number in signs if _kind(targets[number]) in free
    }
    return linked | {number: numbers.pop(0) for number, numbers in found.items() if numbers}


def _kind(word: str) -> str:
    """Kind of a word: ordinary word, sign that ends a sentence, or quotation mark."""
    if word[0].isalnum():
        return ""
    return next((kind for kind in _ALIKE if word in kind), word)


def completed_words(linked: dict[int, int], sources: int, targets: int) -> list[int]:
    """The index of the source word of each target word.

    An unlinked target word gets the source word of the nearest linked one. Without any link, words
    correspond by position.
    """
    if not linked:
        return [target * sources // targets for target in range(targets)]
    numbers = sorted(linked)
    return [linked[_nearest(numbers, target)] for target in range(targets)]


def _nearest(numbers: Sequence[int], number: int) -> int:
    """The nearest of ascending numbers; on a tie the higher one, since an article goes with its
    noun."""
    place = bisect_left(numbers, number)
    around = numbers[max(0, place - 1) : place + 1]
    return min(reversed(around), key=lambda candidate: abs(candidate - number))
