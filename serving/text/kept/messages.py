"""Messages with a text for each case: those of ICU, `{count, plural, one {# file} other {#
files}}`, choices, `{0,choice,0#no files|1#a file|1<{0} files}`, those of Fluent, `{ $n -> [one] a
file *[other] files }`, and of i18next, `(1)[a file];(2-inf)[files];`, and conditions of templates
with an `else`."""

from __future__ import annotations

import re

from serving.text.alignment import Span

_HEAD = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select)\s*,(?:\s*offset:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(?:=\s*)?[^\s{}=]+\s*\{")
_END = re.compile(r"\s*\}")
_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*choice\s*,")
_LIMIT = re.compile(r"\s*-?[\d.\u221e]+\s*[#<\u2264]")
_SIGN = re.compile(r"'[{}][^']*+'?|[{}]")


_FLUENT = re.compile(r"\{\s*[$-]?[\w.-]+(?:\([^{}()\n]{0,100}\))?\s*->")
_VARIANT = re.compile(r"\s*\*?\[\s*[\w.-]+\s*\][ \t]*")
_INTERVAL = re.compile(r"\(\d+(?:-(?:\d+|inf))?\)\[")
_CONDITIONS = (
    (
        r"\{\{[~]?[#^]\s*(?:if|unless)\b[^{}]*\}\}",
        r"\{\{[~]?\s*else\b[^{}]*\}\}|\{\{\^\}\}",
        r"\{\{[~]?/\s*(?:if|unless)\s*[~]?\}\}",
    ),
    (
        r"\{%[-+]?\s*(?:if|unless|blocktrans)\b[^%]*%\}",
        r"\{%[-+]?\s*(?:else|elif|elsif|elseif|plural)\b[^%]*%\}",
        r"\{%[-+]?\s*end(?:if|unless|blocktrans)\w*\s*[-+]?%\}",
    ),
    (r"\{if\s[^{}]*\}", r"\{else(?:if\b[^{}]*)?\}", r"\{/if\}"),
)
_BLOCKS = [
    (re.compile(begins), re.compile(f"(?P<begins>{begins})|(?P<turns>{turns})|(?P<ends>{ends})"))
    for begins, turns, ends in _CONDITIONS
]
CONDITION = "|".join(f"{begins}|{turns}|{ends}" for begins, turns, ends in _CONDITIONS)
"""Pattern of a part of a template that selects a text."""
MESSAGE = (
    r"\{(?=\s*[\w.-]+\s*,\s*(?:plural|select|choice)"
    r"|\s*[$-]?[\w.-]+(?:\([^{}()\n]{0,100}\))?\s*->|\{~?[#^]\s*(?:if|unless)\b"
    r"|%[-+]?\s*(?:if|unless|blocktrans)\b|if\s)|\(\d+(?:-(?:\d+|inf))?\)\["
)
"""Pattern of the start of a message."""


def message_branches(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """The end of the message that starts here, and the texts of its branches; None if it is not a
    complete message."""
    if text[begin] == "(":
        return _intervals(text, begin)
    if fluent := _FLUENT.match(text, begin):
        return _variants(text, fluent.end())
    for head, parts in _BLOCKS:
        if head.match(text, begin):
            return _block(text, begin, parts)
    return _icu(text, begin)


def _icu(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """A plural, select or choice."""
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
    """The same for a choice; each branch has a limit."""
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
    """Position where the brace opened before `begin` is closed; a quoted brace is text."""
    depth = 1
    for sign in _SIGN.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return sign.start()
    return None


def _variants(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """Variants of Fluent; each ends where the next one begins."""
    end = _closing(text, begin)
    if end is None:
        return None
    starts, at = [], begin
    while found := _VARIANT.match(text, at, end) or _next_variant(text, at, end):
        starts.append(found)
        at = found.end()
    if not starts:
        return None
    ends = [found.start() for found in starts[1:]] + [end]
    branches = []
    for start, last in zip(starts, ends, strict=True):
        words = text[start.end() : last]
        first = start.end() + len(words) - len(words.lstrip())
        branches.append((first, first + len(words.strip())))
    return end + 1, branches


def _next_variant(text: str, begin: int, end: int) -> re.Match[str] | None:
    """Position of the next variant, outside of braces."""
    depth = 0
    for sign in re.compile(r"[{}]|(?<=\s)\*?\[[\w.-]+\]").finditer(text, begin, end):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0 and sign[0][-1] == "]":
            return _VARIANT.match(text, sign.start(), end)
    return None


def _intervals(text: str, begin: int) -> tuple[int, list[Span]] | None:
    """Intervals of i18next; there are at least two."""
    branches, at = [], begin
    while interval := _INTERVAL.match(text, at):
        end = text.find("]", interval.end())
        if end < 0:
            return None
        branches.append((interval.end(), end))
        at = end + 1 + (text[end + 1 : end + 2] == ";")
    return (at, branches) if len(branches) > 1 else None


def _block(text: str, begin: int, parts: re.Pattern[str]) -> tuple[int, list[Span]] | None:
    """Branches of a condition that has several."""
    depth, done, branches = 0, begin, []
    for part in parts.finditer(text, begin):
        depth += {"begins": 1, "ends": -1}.get(part.lastgroup or "", 0)
        outermost = (depth == 1 and part.start() > begin and part["turns"]) or depth == 0
        if outermost:
            branches.append((done, part.start()))
        if outermost or part.start() == begin:
            done = part.end()
        if depth == 0:
            return (done, branches) if len(branches) > 1 else None
    return None
