"""Finds the line breaks of a text that was wrapped at a width, as in e-mails and text files: a
sentence goes on behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from serving.text.splitting.sentences import MARKER

_LINE = re.compile(r"([ \t]*(?:>[ \t]*)*)([^\r\n]*)(?:\r?\n|\r|\Z)")
_LAST = re.compile(r"""[\w,;.!?…)\]"'»“”’«‘%€$£—–-]\Z""")  # noqa: RUF001
"""Pattern of the end of a line that may go on in the next one. Behind a colon a list may begin."""
_FIRST = re.compile(r"""[\w(\["'„“«»‚‘¿¡]""")  # noqa: RUF001
_OBJECT = re.compile(r"(?:\\\S|&#?\w{1,31};)\Z")
"""Pattern of an escape or an entity at the end of a line."""
_SMALL = re.compile(r"[^\w\s]*[^\W\d_]")
_ENDED = re.compile(r"""[.!?…][)\]"'»“”’«‘]*\Z""")  # noqa: RUF001
_COLUMNS = re.compile(r"[\t|]|   ")
_ITEM = re.compile(rf"{MARKER.pattern}|\d{{1,3}}[.)]\s|\[.?\]\s")
_HALF = re.compile(r"([^\W\d_]{1,40})-\Z")
_WORD = re.compile(r"[^\W\d_]+")
_CONJUNCTIONS = frozenset("and bis e et o oder or ou sowie to u und y".split())  # noqa: SIM905
"""Words before which a hyphen stands for the rest of a word: `Ein- und Ausgabe`."""
_HYPHENATED = (
    frozenset("full half high ill long low non self short well".split()),  # noqa: SIM905
    frozenset(
        """
        ce ci elle elles en être il ils je la là le les leur lui même mêmes moi nous on toi tu vous
        y
        """.split()  # noqa: SIM905
    ),
)
"""First and second halves of words that are written with a hyphen: `well-known`, `peut-être`."""
_NARROWEST, _WIDEST = 45, 120
"""Widths in characters at which people wrap text."""
_FULL = 0.75
"""Least length of a full line with the first word of the next one, as a share of the longest line.
Programs that even lines out fill them less, and so do translations, which another model may read
next."""


@dataclass(frozen=True)
class _Line:
    begin: int
    """Where its words begin."""
    end: int
    """Where its words end."""
    indent: str
    """Blanks and the marks of a quotation before its words."""
    words: str

    @property
    def width(self) -> int:
        return len(self.indent) + len(self.words)


class SoftBreak(NamedTuple):
    """A line break at which a paragraph was wrapped."""

    begin: int
    """Where the blanks before it begin, or the hyphen that divides a word."""
    end: int
    """Where the next words begin, after the indentation and marks of quotation."""
    read: str
    """A space, or nothing within a word."""
    written: str
    """How it is written within a translation."""


@dataclass(frozen=True)
class _Break:
    """A line break that may be within a sentence."""

    place: SoftBreak
    wanted: int
    """How long the line would be with the first word of the next one."""
    certain: bool
    """Whether a sentence must go on behind it."""


@dataclass(frozen=True)
class _Run:
    """The breaks after successive full lines."""

    width: int
    """The longest line of their paragraph."""
    breaks: Sequence[_Break]

    @property
    def sure(self) -> bool:
        return any(each.certain for each in self.breaks)


def soft_breaks(text: str) -> list[SoftBreak]:
    """The line breaks at which paragraphs were wrapped.

    They follow full lines: the next word would not have fitted. Behind one of several such breaks
    in a row is a small letter, and before it no end of a sentence; or the lines are as wide as
    others of the text of which that is true.
    """
    if "\n" not in text.strip() or len(text) < _NARROWEST:
        return []
    runs = [run for paragraph in _paragraphs(text) for run in _full_runs(text, paragraph)]
    widest = max((run.width for run in runs if run.sure), default=0)
    return [
        each.place
        for run in runs
        if run.sure or run.width <= widest < min(each.wanted for each in run.breaks)
        for each in run.breaks
    ]


def _paragraphs(text: str) -> Iterator[list[_Line]]:
    """The stretches of several lines with words."""
    lines = [
        _Line(found.start(2), found.start(2) + len(words), found[1], words)
        for found in _LINE.finditer(text)
        for words in [found[2].rstrip()]
    ]
    for has_words, group in groupby(lines, key=lambda line: line.words != ""):
        paragraph = list(group)
        if has_words and len(paragraph) > 1:
            yield paragraph


def _full_runs(text: str, paragraph: Sequence[_Line]) -> Iterator[_Run]:
    width = max((line.width for line in paragraph if " " in line.words), default=0)
    if not _NARROWEST <= width <= _WIDEST:
        return
    breaks: list[_Break] = []
    for number, (line, following) in enumerate(pairwise(paragraph)):
        first, _, _ = following.words.partition(" ")
        wanted = line.width + 1 + len(first)
        full = line.width <= width and wanted >= _FULL * width
        if full and _may_go_on(line, following, is_first=number == 0):
            small = _SMALL.match(following.words)
            certain = small is not None and small[0][-1].islower() and not _ENDED.search(line.words)
            breaks.append(_Break(_soft_break(text, line, following), wanted, certain))
        elif breaks:
            yield _Run(width, breaks)
            breaks = []
    if breaks:
        yield _Run(width, breaks)


def _may_go_on(line: _Line, following: _Line, *, is_first: bool) -> bool:
    """Whether a sentence may go on in the next line. The first line of a paragraph may be indented
    otherwise, or have the marker of a list."""
    begins = is_first or len(line.indent) > len(following.indent) or _ITEM.match(line.words)
    quoted = line.indent.count(">"), following.indent.count(">")
    if line.indent != following.indent and not (begins and quoted[0] == quoted[1]):
        return False
    if _OBJECT.search(line.words) or any(_COLUMNS.search(e.words) for e in (line, following)):
        return False
    ends = _LAST.search(line.words) and _FIRST.match(following.words)
    return bool(ends and any(map(str.isalpha, line.words)) and not _ITEM.match(following.words))


def _soft_break(text: str, line: _Line, following: _Line) -> SoftBreak:
    hyphen, read = _between(line.words, following.words)
    begin, end = line.end, following.begin
    return SoftBreak(begin - hyphen, end, read, text[begin:end])


def joined(line: str, following: str) -> str:
    """Two lines of a paragraph, or what was joined before and a line, as one text."""
    hyphen, read = _between(line, following)
    return line[: len(line) - hyphen] + read + following


def _between(line: str, following: str) -> tuple[int, str]:
    """The length of the hyphen that divides a word at the end of a line, and what is read in its
    place and that of the line break."""
    half, rest = _HALF.search(line), _WORD.match(following)
    if not (half and rest and rest[0][0].islower()) or rest[0] in _CONJUNCTIONS:
        return 0, " "
    first, last = half[1].lower(), rest[0]
    has_more = len(first) == 1 or following.startswith("-", len(last))  # `e-mail`, `mother-in-law`
    keeps_hyphen = has_more or first in _HYPHENATED[0] or last in _HYPHENATED[1]
    return (0 if keeps_hyphen else 1), ""
