"""Puts the line breaks within a sentence into its translation, which has as many lines."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from serving.text.alignment import Span
from serving.text.edits import Edit, edited, edited_links
from serving.text.kept.masks import mask_pattern
from serving.text.passages.passage import Passage
from serving.text.placing.placement import Translated
from serving.text.splitting.wrapping import SoftBreak

_SPACES = re.compile(r"(?<=[^\s«¿¡]) +(?=[^\s:;!?»%])")


def has_lines(passage: Passage, sentence: Span, breaks: Sequence[SoftBreak]) -> bool:
    """Whether a line break is within a sentence. The breaks are those of the source, in order."""
    return next(_within(passage, sentence, breaks), None) is not None


def in_lines(
    given: Translated, passage: Passage, sentence: Span, breaks: Sequence[SoftBreak]
) -> Translated:
    """The translation of a sentence with the line breaks within it, each at the space that is
    nearest to its share of the length. A translation that has too few spaces ends with the rest of
    them. One that equals the source is written as that, but for kept objects."""
    begin, end = sentence
    if given.text == passage.text[begin:end] and not passage.inlines:
        return given
    places = list(_within(passage, sentence, breaks))
    if not places:
        return given
    spaces = list(_spaces(given.text, passage, sentence))
    edits = list[Edit]()
    done = 0
    for number, (place, written) in enumerate(places):
        left = len(places) - number - 1  # each needs a space, too
        free = spaces[done : max(done + 1, len(spaces) - left)]
        best = (len(given.text), len(given.text))
        if free:
            share = (place - begin) / (end - begin) * len(given.text)
            best = min(free, key=lambda space: abs(space[0] - share))
            done = spaces.index(best, done) + 1
        edits.append(Edit(best, written))
    return Translated(edited(given.text, edits), edited_links(given.links, edits))


def _within(
    passage: Passage, sentence: Span, breaks: Sequence[SoftBreak]
) -> Iterator[tuple[int, str]]:
    """The places in the passage that are line breaks, or characters with one behind them, and how
    the breaks are written."""
    first, last = passage.origin(sentence)
    begins, ends = passage.origins.begins, passage.origins.ends
    for number in range(bisect_left(breaks, (first,)), bisect_left(breaks, (last,))):
        found = breaks[number]
        place = bisect_right(begins, found.begin, *sentence) - 1
        kept = any(thing.begin <= place < thing.end for thing in passage.masked)
        if place >= sentence[0] and ends[place] >= found.end and not kept:
            yield place, found.written


def _spaces(text: str, passage: Passage, sentence: Span) -> Iterator[Span]:
    """The spaces of a translation that a line may end with: none within a mask."""
    masks = [
        passage.text[thing.begin : thing.end]
        for thing in passage.masked
        if sentence[0] <= thing.begin < sentence[1]
    ]
    inside = [
        found.span()
        for mask in masks
        if " " in mask
        for found in re.finditer(mask_pattern(mask), text)
    ]
    for found in _SPACES.finditer(text):
        if not any(begin < found.start() < end for begin, end in inside):
            yield found.span()
