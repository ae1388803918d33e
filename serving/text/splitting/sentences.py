"""Splits a text into sentences, and a sentence that is too long into parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from sentencex import get_sentence_boundaries

from serving.text.alignment import Span
from serving.text.splitting.abbreviations import goes_on
from serving.text.symbols import UNSEEN_ENDS

_NONE: Mapping[int, int] = {}
_CELL = re.compile(r"[^|]+")
_LINE = re.compile(r"[^\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_STRONG = re.compile(r"[;:—–]\s+|[；：]")  # noqa: RUF001
_COMMA = re.compile(r"[,)\]]\s+|[，、]")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_SPACE_MARK = re.compile(r"\s")
MARKER = re.compile(
    r"(?:(?:[-–—*•·‣◦▪>#|+]+|\(?(?:\d{1,3}|[a-zA-Z])\.?\))\s+)+"
    r"|—(?=[^\W\d_]|[¿¡«\"“])|--(?=[A-ZÀ-ÖØ-Þ¿¡«\"“])|(?<=\d\.)\)\s+"
)
"""Marks before an item of a list (`1.)` is divided after its full stop), and the dash with which
what somebody says begins."""
_NUMBER = re.compile(r"\(?\d{1,3}[.)]|\(?[a-zA-Z]\)")
_CONTENT = re.compile(rf"[^\s{UNSEEN_ENDS}](?:.*[^\s{UNSEEN_ENDS}])?", re.DOTALL)
_LONG = re.compile(r"\S{25,}")
"""Words that may exceed what a model reads."""
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Pattern of a character of scripts without spaces between words."""
_MIDDLE = 0.3
"""Smallest share of the text that a part split at punctuation may have, to avoid very short
parts."""


def sentence_spans(
    text: str, language: str, variables: Collection[Span] = (), ends: Sequence[Span] = ()
) -> Iterator[Span]:
    """Spans of the sentences, without surrounding white space and list markers. A line break, a
    tab, a bar between table cells, and what lies in `ends` always end a sentence. Masks in
    `variables` may stand for numbers, as in ordinals."""
    counted = variables and language == "de"
    numbers = {end: begin for begin, end in variables} if counted else _NONE
    for line in _LINE.finditer(text):
        if line[0].isspace():
            continue
        cells = [line.span()]
        if "|" in line[0]:
            cells = [cell.span() for cell in _CELL.finditer(text, *line.span())]
        for first, last in cells:
            sentences = _sentences(text, (first, last), language, numbers)
            for span in _around(sentences, ends) if ends else sentences:
                begin, end = stripped(text, span)
                marker = MARKER.match(text, begin, end)
                begin = marker.end() if marker else begin
                if begin < end and not _NUMBER.fullmatch(text, begin, end):
                    yield begin, end


def _around(sentences: Iterable[Span], ends: Sequence[Span]) -> Iterator[Span]:
    """The sentences, divided at the ends within them."""
    for begin, end in sentences:
        for first, last in ends:
            if begin < first and last < end:
                yield begin, first
                begin = last
        yield begin, end


def _sentences(text: str, line: Span, language: str, numbers: Mapping[int, int]) -> list[Span]:
    """The library's sentences, joined if a full stop belongs to an abbreviation or a number."""
    found: list[Span] = []
    for first, last in _boundaries(text[slice(*line)], language):
        begin, end = line[0] + first, line[0] + last
        if found and goes_on(_spoken(text, found[-1], numbers), text[begin:end], language):
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _spoken(text: str, sentence: Span, numbers: Mapping[int, int]) -> str:
    """The sentence with a digit in place of a mask before its full stop."""
    begin, end = sentence
    if not numbers:
        return text[begin:end]
    last = len(text[begin:end].rstrip()) + begin - 1
    if last not in numbers:
        return text[begin:end]
    return f"{text[begin : max(begin, numbers[last])]}1."


def _boundaries(line: str, language: str) -> list[Span]:
    """The library's boundaries. It panics on some lines: a letter, a no-break space and a full
    stop.

    Such a line is tried again with plain spaces; if that fails too, it counts as one sentence.
    """
    found = _split(line, language)
    if found is None:
        found = _split(_SPACE_MARK.sub(" ", line), language)
    return [(0, len(line))] if found is None else found


def _split(line: str, language: str) -> list[Span] | None:
    """The library's result; None if it panics."""
    try:
        found = get_sentence_boundaries(language, line)
    except (
        BaseException
    ) as error:  # a panic is not an Exception and would end more than the request
        if type(error).__name__ != "PanicException":
            raise
        return None
    return [(each["start_index"], each["end_index"]) for each in found]


def has_words(text: str) -> bool:
    """Whether a text contains a letter: numbers, times, rules and pictures are the same in every
    language."""
    return any(map(str.isalpha, text))


def stripped(text: str, span: Span) -> Span:
    """The span without white space or a byte order mark at its ends."""
    found = _CONTENT.search(text, *span)
    return (found.start(), found.end()) if found else (span[1], span[1])


def divided(
    text: str, span: Span, fits: Callable[[str], bool], *, between_words: bool = True
) -> Iterator[Span]:
    """The span, or parts of it that fit. It is split around words that do not fit themselves, then
    near the middle: after clause punctuation if possible, else at a space. A single word stays
    whole even if it does not fit; if `between_words` is false, the text between such words stays
    whole too."""
    if fits(text[slice(*span)]):
        yield span
        return
    done = span[0]
    for word in _LONG.finditer(text, *span):
        if not fits(word[0]) and not UNSPACED.search(word[0]):
            yield from _fitting(text, (done, word.start()), fits, between_words)
            yield word.span()
            done = word.end()
    yield from _fitting(text, (done, span[1]), fits, between_words)


def in_clauses(
    text: str,
    span: Span,
    usual: Callable[[str], bool] | None,
    greeting: Callable[[str], int] | None = None,
) -> Iterator[Span]:
    """The span of a sentence, or parts of it that are as long as usual. It is split after a
    `greeting`, whose end is found by this, and near the middle, after clause punctuation alone:
    without any, it stays whole."""
    begin, end = span
    length = greeting(text[begin:end]) if greeting else 0
    if length:
        yield begin, begin + length
        begin, end = span = stripped(text, (begin + length, end))
    if usual is None:
        yield span
        return
    part = text[begin:end]
    cut = None if usual(part) else _clause_cut(part)
    if cut is None:
        yield span
        return
    for half in ((begin, begin + cut), (begin + cut, end)):
        yield from in_clauses(text, stripped(text, half), usual)


def _fitting(
    text: str, span: Span, fits: Callable[[str], bool], between_words: bool
) -> Iterator[Span]:
    begin, end = span = stripped(text, span)
    if begin == end:
        return
    part = text[begin:end]
    cut = None if not between_words or fits(part) else _cut(part)
    if cut is None:
        yield span
        return
    for half in ((begin, begin + cut), (begin + cut, end)):
        yield from _fitting(text, half, fits, between_words)


def _cut(text: str) -> int | None:
    """Start of the second part."""
    cut = _clause_cut(text)
    if cut is not None:
        return cut
    for pattern in (_SPACE, UNSPACED):
        places = [match.end() for match in pattern.finditer(text, 0, len(text) - 1)]
        if places:
            return _nearest(places, len(text) / 2)
    return None


def _clause_cut(text: str) -> int | None:
    """Start of the second part after clause punctuation; None if there is none near the middle."""
    low, high = len(text) * _MIDDLE, len(text) * (1 - _MIDDLE)
    for pattern in (_STRONG, _COMMA):
        places = [match.end() for match in pattern.finditer(text, 0, len(text) - 1)]
        places = [place for place in places if low <= place <= high]
        if places:
            return _nearest(places, len(text) / 2)
    return None


def _nearest(places: Sequence[int], middle: float) -> int:
    return min(places, key=lambda place: abs(place - middle))
