"""Where sentences begin and end, and where a sentence that is too long may be divided."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from sentencex import get_sentence_boundaries

from serving.text.alignment import Span

_LINE = re.compile(r"[^\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_STRONG = re.compile(r"[;:—–]\s+|[；：]")  # noqa: RUF001
_COMMA = re.compile(r"[,)\]]\s+|[，、]")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_SPACE_MARK = re.compile(r"\s")
_MARKER = re.compile(r"(?:(?:[-–—*•·‣◦▪>#|+]+|\(?(?:\d{1,3}|[a-zA-Z])\))\s+)+")
_NUMBER = re.compile(r"\(?\d{1,3}[.)]|\(?[a-zA-Z]\)")
_CONTENT = re.compile(r"[^\s\ufeff](?:.*[^\s\ufeff])?", re.DOTALL)
_NO_WORDS = frozenset(("Sm", "Sk"))
_MIDDLE = 0.3
"""Share of a text that a part divided off at punctuation has at least, so that none is a stub."""


def sentence_spans(text: str, language: str) -> Iterator[Span]:
    """Each sentence, without the white space around it and the marker of a list before it; a line
    break or a tab always ends one."""
    for line in _LINE.finditer(text):
        if line[0].isspace():
            continue
        for span in _boundaries(line[0], language):
            begin, end = stripped(text, (line.start() + span[0], line.start() + span[1]))
            marker = _MARKER.match(text, begin, end)
            begin = marker.end() if marker else begin
            if begin < end and not _NUMBER.fullmatch(text, begin, end):
                yield begin, end


def _boundaries(line: str, language: str) -> list[Span]:
    """Those of the library, which panics at some lines: a letter, a no-break space and a full stop.

    Such a line is looked at with plain spaces, and if that does not help taken as one sentence.
    """
    found = _split(line, language)
    if found is None:
        found = _split(_SPACE_MARK.sub(" ", line), language)
    return [(0, len(line))] if found is None else found


def _split(line: str, language: str) -> list[Span] | None:
    """What the library finds; None where it panics."""
    try:
        found = get_sentence_boundaries(language, line)
    except BaseException as error:  # a panic is no Exception, and would end more than a request
        if type(error).__name__ != "PanicException":
            raise
        return None
    return [(each["start_index"], each["end_index"]) for each in found]


def has_words(text: str) -> bool:
    """Whether there is more than punctuation, such as bullets, rules and frames."""
    categories = map(unicodedata.category, text)
    return any(kind[0] not in "CPZ" and kind not in _NO_WORDS for kind in categories)


def stripped(text: str, span: Span) -> Span:
    """The span without white space, or a byte order mark, at its ends."""
    found = _CONTENT.search(text, *span)
    return (found.start(), found.end()) if found else (span[1], span[1])


def divided(text: str, span: Span, fits: Callable[[str], bool]) -> Iterator[Span]:
    """The span, or parts of it that fit: divided near the middle, after clause punctuation where
    there is some, else at a space. A word alone is left whole, fit or not."""
    begin, end = span
    part = text[begin:end]
    cut = None if fits(part) else _cut(part)
    if cut is None:
        yield span
        return
    for half in ((begin, begin + cut), (begin + cut, end)):
        yield from divided(text, stripped(text, half), fits)


def _cut(text: str) -> int | None:
    """Where the second part begins."""
    middle, low, high = len(text) / 2, len(text) * _MIDDLE, len(text) * (1 - _MIDDLE)
    for pattern in (_STRONG, _COMMA, _SPACE):
        places = [match.end() for match in pattern.finditer(text)]
        if pattern is not _SPACE:
            places = [place for place in places if low <= place <= high]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return None
