"""Messages of ICU: `{count, plural, one {# file} other {# files}}`, and choices, as
`{0,choice,0#no files|1#a file|1<{0} files}`."""

from __future__ import annotations

import re

from serving.text.alignment import Span

_HEAD = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select)\s*,(?:\s*offset:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(?:=\s*)?[^\s{}=]+\s*\{")
_END = re.compile(r"\s*\}")
_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*choice\s*,")
_LIMIT = re.compile(r"\s*-?[\d.\u221e]+\s*[#<\u2264]")
_SIGN = re.compile(r"'[{}][^']*+'?|[{}]")


def icu_branches(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """Of a plural, select or choice that begins with a brace: its end, and the texts of its
    branches; None where it is none, or not a whole one."""
    if choice := _CHOICE.match(text, begin):
        return _choice(text, choice.end())
    head = _HEAD.match(text, begin)
    if head is None:
        return None
    at, branches = head.end(), []
    while selector := _SELECTOR.match(text, at):
        end = _closing(text, selector.end())
        if end is None:
            return None
        branches.append((selector.end(), end))
        at = end + 1
    closed = _END.match(text, at)
    return (closed.end(), branches) if closed and branches else None


def _choice(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """The same of a choice whose branches begin here, each with its limit."""
    end = _closing(text, begin)
    if end is None:
        return None
    bars, depth = [begin - 1], 0
    for at in range(begin, end):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if text[at] == "|" and depth == 0:
            bars.append(at)
    limits = [_LIMIT.match(text, bar + 1, end) for bar in bars]
    branches = [
        (limit.end(), last) for limit, last in zip(limits, [*bars[1:], end], strict=True) if limit
    ]
    return (end + 1, branches) if len(branches) == len(bars) else None


def _closing(text: str, begin: int) -> int | None:
    """Where the brace that was opened before `begin` is closed; a quoted brace is text."""
    depth = 1
    for sign in _SIGN.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return sign.start()
    return None
