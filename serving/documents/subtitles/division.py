"""Divides a translated sentence among the cues of its source, and a cue's words among lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from serving.documents.unit import Link, Translated

LINE_CHARACTERS = 42
LINES = 2
_TAG = re.compile(r"<(/?)([A-Za-z][\w.]*)[^<>]*>|\{[^{}]*\}|<[\d:.]+>")
_WIDE = r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_BREAK = re.compile(rf" +|(?<={_WIDE})(?={_WIDE})")
_CROSSED, _OVERFULL, _EMPTY = 8.0, 0.25, 50.0


def divided(given: Translated, source: Sequence[str], seconds: Sequence[float]) -> list[str]:
    """Divide a sentence's translation into as many parts as its source had. The source's parts are
    given as they were translated, joined by spaces, with the seconds that each is shown.

    The parts keep their order. A cut is placed where it crosses few word links, preferably after
    punctuation, and so that each part gets its share of time and space.
    """
    if len(source) == 1:
        return [given.text]
    text = given.text
    cuts = [span for span in _breaks(text) if span[0] > 0 and span[1] < len(text)]
    places = [(0, 0), *cuts, (len(text), len(text))]
    shares = _shares(source, seconds)
    bounds = list(accumulate(len(part) + 1 for part in source))
    measured = _Measured(text, places)
    # best[p]: the cheapest division of the parts so far that ends at the p-th position.
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for part, share in enumerate(shares):
        last = part == len(shares) - 1
        ends = [len(places) - 1] if last else range(len(places))
        costs = [
            0.0 if last else _cut_cost(text, places[end], bounds[part], given.links) for end in ends
        ]
        following: dict[int, tuple[float, list[int]]] = {}
        for end, own in zip(ends, costs, strict=True):
            found = [
                (cost + own + measured.part_cost(begin, end, share), way)
                for begin, (cost, way) in best.items()
                if begin <= end
            ]
            cost, way = min(found, key=lambda pair: pair[0])
            following[end] = (cost, [*way, end])
        best = following
    _, way = best[len(places) - 1]
    parts = [text[places[begin][1] : places[end][0]] for begin, end in pairwise(way)]
    return _closed(parts)


def _breaks(text: str) -> list[tuple[int, int]]:
    """Positions where a text may be divided: not within tags."""
    tags = [match.span() for match in _TAG.finditer(text)]
    return [
        match.span()
        for match in _BREAK.finditer(text)
        if not any(begin < match.start() < end for begin, end in tags)
    ]


def _shares(source: Sequence[str], seconds: Sequence[float]) -> list[float]:
    """Each part's share of the whole: the mean of its shares of visible characters and of time."""
    lengths = [max(len(visible(part)), 1) for part in source]
    return [
        (length / sum(lengths) + time / sum(seconds)) / 2
        for length, time in zip(lengths, seconds, strict=True)
    ]


def _cut_cost(text: str, cut: tuple[int, int], bound: int, links: Sequence[Link]) -> float:
    crossed = sum((link.source[0] < bound) != (link.target[0] < cut[1]) for link in links)
    before = text[: cut[0]].rstrip()[-1:]
    punctuation = 0.5 if before in ".!?…" else 0.3 if before in ",;:–—" else 0.0
    return _CROSSED * crossed / max(len(links), 1) - punctuation


class _Measured:
    """The visible characters between two positions of a text, counted once for all pairs."""

    def __init__(self, text: str, places: Sequence[tuple[int, int]]) -> None:
        counts = [0] * (len(text) + 1)
        inks = [0] * (len(text) + 1)
        hidden = {n for match in _TAG.finditer(text) for n in range(*match.span())}
        for n, char in enumerate(text):
            shown = n not in hidden
            counts[n + 1] = counts[n] + shown
            inks[n + 1] = inks[n] + (shown and not char.isspace())
        self._total = counts[-1]
        self._begins = [(counts[end], inks[end]) for _, end in places]
        self._ends = [(counts[begin], inks[begin]) for begin, _ in places]

    def part_cost(self, begin: int, end: int, share: float) -> float:
        """The cost of a part between these positions that has this share of the whole."""
        (before, ink_before), (until, ink_until) = self._begins[begin], self._ends[end]
        if ink_until <= ink_before:
            return _EMPTY
        length = until - before
        over = max(0, length - LINES * LINE_CHARACTERS)
        wanted = max(share * self._total, 1.0)
        return _OVERFULL * over + abs(length - wanted) / wanted


def visible(text: str) -> str:
    """The text that a viewer sees."""
    return _TAG.sub("", text)


def _closed(parts: Sequence[str]) -> list[str]:
    """Each part with its tags closed at its end and opened again in the next part."""
    written = []
    opened: list[tuple[str, str]] = []
    for part in parts:
        again = "".join(tag for _, tag in opened)
        for match in _TAG.finditer(part):
            closing, name = match[1], match[2]
            if not name or name in ("v", "wbr"):
                continue
            if not closing:
                opened.append((name, match[0]))
            elif opened and opened[-1][0] == name:
                opened.pop()
        ends = "".join(f"</{name.partition('.')[0]}>" for name, _ in reversed(opened))
        written.append(again + part + ends)
    return written


def wrapped(words: str) -> list[str]:
    """Break words into lines of at most LINE_CHARACTERS: one line, else two of like length, else as
    few as possible."""
    if len(visible(words)) <= LINE_CHARACTERS:
        return [words]
    breaks = _breaks(words)
    if len(visible(words)) <= LINES * LINE_CHARACTERS:
        two = [
            (words[:begin], words[end:])
            for begin, end in breaks
            if max(len(visible(words[:begin])), len(visible(words[end:]))) <= LINE_CHARACTERS
        ]
        if two:
            return list(min(two, key=lambda lines: _unevenness(*lines)))
    lines, done = [], 0
    cut: tuple[int, int] | None = None
    for begin, end in [*breaks, (len(words), len(words))]:
        if cut and len(visible(words[done:begin])) > LINE_CHARACTERS:
            lines.append(words[done : cut[0]])
            done = cut[1]
        cut = (begin, end)
    return [*lines, words[done:]]


def _unevenness(first: str, second: str) -> float:
    punctuation = 8 if first.rstrip()[-1:] in ".,;:!?…" else 0
    return abs(len(visible(first)) - len(visible(second))) - punctuation
