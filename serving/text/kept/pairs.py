"""Placeholders around words, which act as tags: `Click %1$shere%2$s`, `[b]now[/b]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.text.alignment import Span
from serving.text.symbols import CLOSING_SIGNS

UNIT = (
    r"(?:[kKMGTP]i?B|px|x|r?em|pt|[mn\u00b5]?s|h|min|[kKcmd]?m|[km]?g|k|M|[kMG]?Hz|dB|kWh?|W|V|C|F"
    r"|st|nd|rd|th)(?![^\W_])"
)
"""Pattern of a unit after a number; it is not a word of its own."""
_BEGINS = re.compile(
    rf"(?:\d[\d.,]*+[ \u00a0])?(?!{UNIT})(?:[^\W\d_]{{2}}|[AEIOaeo][ \u00a0][^\W\d_])"
)
"""Pattern of text that an opening placeholder stands before."""
_CLOSED = re.compile(
    r"[{$%#@\[<].*[})\]>%]|\\\(.*\)|(?:%(?:\d+\$|\(\w+\))?[A-Za-z@])+|%\d{1,2}", re.DOTALL
)
"""A placeholder whose end is clear from its own characters."""
_TAG = re.compile(r"(?:\[|&lt;|<)/?([\w*-]+)")
_FAR = 32
"""Largest number of open placeholders that are searched for a partner: the depth of nested
pairs."""


@dataclass(frozen=True)
class Mark:
    """A match of the placeholder pattern: its span and its possible kind."""

    span: Span
    kind: str
    branches: tuple[Span, ...] = ()


def pairs(text: str, marks: Sequence[Mark]) -> dict[int, Literal["open", "close"]]:
    """The marks that form pairs around words, by index, and whether each opens or closes.

    A BBCode tag is closed by its name. Any other placeholder opens a stretch if a word follows it
    and none precedes it. Another one with the same first character closes the stretch if a word or
    a sign precedes it and no word follows.
    """
    found: dict[int, Literal["open", "close"]] = {}
    stack: list[tuple[int, str]] = []
    for run in _runs(text, marks):
        before, after = _glued(text, marks, run)
        name = _name(text, marks[run[0]])
        for place, index in enumerate(run):
            partner = None
            if before and not (after and place == len(run) - 1):
                partner = _partner(text, marks, index, stack, name)
            if partner is not None:
                found[stack[partner][0]], found[index] = "open", "close"
                del stack[partner:]
            elif after and not (before == "word" and len(run) == 1):
                stack.append((index, name))
                del stack[:-_FAR]
    return found


def _runs(text: str, marks: Sequence[Mark]) -> Iterator[list[int]]:
    """Runs of marks that may belong to a pair; adjacent marks with the same name form one run."""
    run: list[int] = []
    for index, mark in enumerate(marks):
        tag = mark.kind == "tag"
        if not tag and not (mark.kind == "word" and _CLOSED.fullmatch(text, *mark.span)):
            continue
        alike = run and _name(text, marks[run[-1]]) == _name(text, mark)
        if run and (tag or not alike or marks[run[-1]].span[1] != mark.span[0]):
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _glued(text: str, marks: Sequence[Mark], run: Sequence[int]) -> tuple[str, bool]:
    """The kind of text before a run (`word`, `sign` or empty), and whether words follow the run."""
    begin, end = marks[run[0]].span[0], marks[run[-1]].span[1]
    if marks[run[0]].kind == "tag":
        closes = text.startswith(("[/", "&lt;/", "</"), begin)
        return "word" if closes else "", not closes
    last = text[begin - 1 : begin]
    before = "word" if last.isalnum() else "sign" if last in CLOSING_SIGNS else ""
    after = _BEGINS.match(text, end) is not None
    if not after and (text[end : end + 1].isalnum() or text[end : end + 1] == "_"):
        before = ""
    return before, after


def _name(text: str, mark: Mark) -> str:
    """The common property of a pair: the name of a tag, the first character of other marks."""
    begin = mark.span[0]
    if mark.kind != "tag":
        return text[begin]
    found = _TAG.match(text, begin)
    return text[begin] + (found[1].lower() if found else "")


def _partner(
    text: str, marks: Sequence[Mark], index: int, stack: Sequence[tuple[int, str]], name: str
) -> int | None:
    """Position in the stack of the mark that this one closes, or None. A pair crosses no tag, and
    placeholders must be on one line."""
    tag = marks[index].kind == "tag"
    for place in range(len(stack) - 1, -1, -1):
        opened, other = stack[place]
        if other == name and marks[opened].kind == marks[index].kind:
            between = text[marks[opened].span[1] : marks[index].span[0]]
            return place if tag or "\n" not in between else None
        if not tag and marks[opened].kind == "tag":
            return None
    return None
