"""Tokens of a text: words, markup and boundaries. Joins what markup divides and belongs together:
`#<b>topic</b>`, `H<sub>2</sub>O`."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from serving.text.alignment import Span
from serving.text.kept.figures import HINT
from serving.text.kept.messages import MESSAGE
from serving.text.kept.placeholders import (
    Placeholder,
    TagKind,
    likely_tags,
    numbered_tags,
    placeholders,
)
from serving.text.passages.passage import Markup
from serving.text.splitting.wrapping import SoftBreak

MAX_DEPTH = 64
"""Most nested elements of a passage; deeper ones separate the text."""
_NEIGHBOURS = frozenset(("a", "button", "label"))
_VOID = frozenset(("area", "br", "col", "hr", "img", "input", "link", "meta", "wbr"))
"""Tags that are never closed."""
_MESSAGE = re.compile(MESSAGE)
_DEPTH = 8
"""Most nested ICU messages; deeper ones stay unchanged."""
_HINT = re.compile(rf"{HINT}|[@#{{\[$]|%[\w({{]|://|www\.|\w\.\w")
_SCRIPTS = frozenset(("sub", "sup"))
_SHORT = re.compile(r"\s*\S{1,12}\s*")
_TAG = re.compile(r"<[^>]*>")
_LAST_WORD = re.compile(r"[^\W_]+\Z")
_FIRST_WORD = re.compile(r"[^\W_]+")

Kind = Literal["text", "open", "close", "thing", "script", "kept", "space", "hidden", "boundary"]


@dataclass(frozen=True)
class Token:
    """A part of a text: its span and its kind.

    `open` and `close` are the tags of an element whose content is read. `thing` is markup without
    words. `script` belongs to the text before it. `kept` is read as a word and not translated.
    `space` reads as a space, and `hidden` is not read. `boundary` separates passages.
    """

    kind: Kind
    span: Span
    name: str = ""
    markup: Markup | None = None
    """Markup of the following text, if it changes."""
    branches: tuple[tuple[Span, tuple[Token, ...]], ...] = ()
    """Parts of a kept object that are translated separately, and their tokens."""
    figure: bool = False
    """Whether a kept object is a figure."""


def plain_tokens(source: str, span: Span | None = None) -> Iterator[Token]:
    """Tokens of plain text. Numbered tags are markup, and so is anything that looks like a tag; one
    that is never closed, or closes nothing, is kept as a word."""
    span = span or (0, len(source))
    if span[0] < span[1] and "<" not in source and "\\" not in source:
        yield Token("text", span)
        return
    tokens = list(_split_at_tags(source, span, likely_tags))
    pairs = paired(tokens)
    for index, token in enumerate(tokens):
        named = token.kind in ("open", "close") and not token.name.isdecimal()
        if not named or index in pairs:
            yield token
        elif token.kind == "open" and token.name.lower() not in _VOID:
            yield Token("kept", token.span)
        else:
            yield Token("thing", token.span)


def with_numbered_tags(source: str, span: Span) -> Iterator[Token]:
    """Text and its numbered tags."""
    return _split_at_tags(source, span, numbered_tags)


def _split_at_tags(
    source: str, span: Span, tags: Callable[[str], Iterator[tuple[Span, str, TagKind]]]
) -> Iterator[Token]:
    begin, end = span
    done = begin
    for (first, last), name, kind in tags(source[begin:end]):
        if begin + first > done:
            yield Token("text", (done, begin + first))
        done = begin + last
        yield Token(kind, (begin + first, done), name)
    if end > done:
        yield Token("text", (done, end))


def with_neighbours_apart(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, with a boundary between adjacent links, buttons and labels that no space
    separates: they are separate texts."""
    found: list[Token] = []
    ended = ""  # name of the element that ended right before
    for token in tokens:
        name = token.name.lower()
        if token.kind == "open" and name in _NEIGHBOURS and name == ended:
            found.append(Token("boundary", (token.span[0], token.span[0])))
        if token.kind != "thing":
            ended = name if token.kind == "close" else ""
        found.append(token)
    return found


def paired(tokens: Sequence[Token]) -> set[int]:
    """Tags that form pairs, with no boundary between them.

    Any other tag becomes a boundary. So wrongly nested markup keeps its place, and a browser reads
    the translation as it reads the original.
    """
    found: set[int] = set()
    stack: list[int] = []
    names: Counter[str] = Counter()
    divided = 0  # number of elements, from the bottom of the stack, that contain a boundary
    for index, token in enumerate(tokens):
        if token.kind == "open":
            stack.append(index)
            names[token.name] += 1
            if len(stack) > MAX_DEPTH:
                divided = len(stack)
        elif token.kind == "close":
            if not stack or tokens[stack[-1]].name != token.name:
                divided = len(stack)
            if names[token.name]:
                while True:
                    opened = stack.pop()
                    names[tokens[opened].name] -= 1
                    if tokens[opened].name == token.name:
                        break
                if len(stack) >= divided:
                    found |= {opened, index}
        elif token.kind == "boundary":
            divided = len(stack)
        divided = min(divided, len(stack))
    return found


def with_breaks(tokens: Sequence[Token], breaks: Sequence[SoftBreak]) -> Iterator[Token]:
    """The tokens, with the line breaks within their text, which are in order."""
    done = 0
    for token in tokens:
        begin, end = token.span
        while done < len(breaks) and breaks[done].begin <= begin:
            done += 1
        while token.kind == "text" and done < len(breaks) and breaks[done].end < end:
            line = breaks[done]
            yield replace(token, span=(begin, line.begin))
            yield Token("space" if line.read else "hidden", (line.begin, line.end))
            begin = line.end
            done += 1
        yield replace(token, span=(begin, end))


def joined_tokens(source: str, tokens: Sequence[Token], depth: int = 0) -> list[Token]:
    """The tokens, with these joined: short raised and lowered text with the text before it, links,
    names and topics that tags divide, and ICU messages, which are nested within `depth` others.
    Tags without a partner have become boundaries (`paired`)."""
    if len(tokens) > 2:
        tokens = _with_scripts(source, tokens)
    elif ("{" not in source and ")[" not in source) or not _MESSAGE.search(source):
        return _in_pairs(tokens)
    found: list[Token] = []
    run: list[Token] = []
    for token in tokens:
        if token.kind == "boundary":
            found += _joined(source, run, depth)
            found.append(token)
            run = []
        else:
            run.append(token)
    return _in_pairs(found + _joined(source, run, depth))


def _in_pairs(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, with a boundary in place of each tag without a partner."""
    pairs = paired(tokens)
    return [
        replace(token, kind="boundary")
        if token.kind in ("open", "close") and index not in pairs
        else token
        for index, token in enumerate(tokens)
    ]


def _with_scripts(source: str, tokens: Sequence[Token]) -> list[Token]:
    tokens = list(tokens)
    found: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        last = _end_of_script(source, tokens, index)
        before = (
            source[slice(*found[-1].span)]
            if found and found[-1].kind in ("text", "script", "kept")
            else ""
        )
        if last is None or not before or before[-1].isspace():
            found.append(token)
            index += 1
            continue
        index = last + 1
        span = (token.span[0], tokens[last].span[1])
        after = tokens[index] if index < len(tokens) else None
        word = _FIRST_WORD.match(source, *after.span) if after and after.kind == "text" else None
        begin = _LAST_WORD.search(source, *found[-1].span) if found[-1].kind == "text" else None
        if word and (begin or found[-1].kind == "kept"):  # within a word, as in a formula
            text = found.pop()
            first = begin.start() if begin else text.span[0]
            if text.span[0] < first:
                found.append(Token("text", (text.span[0], first)))
            found.append(Token("kept", (first, word.end())))
            if after and word.end() < after.span[1]:
                tokens[index] = Token("text", (word.end(), after.span[1]))
            else:
                index += 1
        else:
            found.append(Token("script", span))
    return found


def _end_of_script(source: str, tokens: Sequence[Token], start: int) -> int | None:
    """End of a raised or lowered element that contains at most a word."""
    if tokens[start].kind != "open" or tokens[start].name.lower() not in _SCRIPTS:
        return None
    depth, text = 0, ""
    for index in range(start, min(start + 12, len(tokens))):
        token = tokens[index]
        if token.kind == "boundary":
            return None
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if token.kind in ("text", "kept"):
            text += _TAG.sub("", source[slice(*token.span)])
        if depth == 0:
            return index if _SHORT.fullmatch(text) else None
    return None


def _joined(source: str, tokens: list[Token], depth: int) -> list[Token]:
    """Join tokens that belong together; there is no boundary among them."""
    texts = [token for token in tokens if token.kind == "text"]
    if not texts:
        return tokens
    whole = "".join(_shown(source, token) for token in tokens)
    message = _MESSAGE.search(whole) is not None
    if not message and (len(texts) < 2 or not _HINT.search(whole)):
        return tokens
    places = [at for token in tokens for at in _shown_places(source, token)]
    found: list[Token] = []
    done = tokens[0].span[0]
    kept = list(placeholders(whole, escapes=False))
    around = _around(tokens, kept, places)
    for placeholder in kept:
        first, last = placeholder.span
        begin, end = places[first], places[last - 1] + 1
        if placeholder in around and done <= begin:
            kind: Literal["open", "close"] = "open" if placeholder.kind == "open" else "close"
            found += [*_cut(tokens, (done, begin)), Token(kind, (begin, end), around[placeholder])]
            done = end
        if placeholder.kind not in ("word", "figure"):
            continue
        span = _balanced(tokens, (begin, end))
        if span is None or span[0] < done:
            continue
        span = _with_elements(tokens, span)
        if span == (begin, end) and not (placeholder.branches or _divided(tokens, span)):
            continue
        branches = [
            _with_tags(tokens, (places[b], places[e - 1] + 1)) if b < e else (0, 0)
            for b, e in placeholder.branches
        ]
        if depth == _DEPTH:
            branches = []
        found += _cut(tokens, (done, span[0]))
        found.append(
            Token(
                "kept",
                span,
                figure=placeholder.kind == "figure",
                branches=tuple(
                    (branch, tuple(joined_tokens(source, _cut(tokens, branch), depth + 1)))
                    for branch in branches
                    if branch[0] < branch[1]
                ),
            )
        )
        done = span[1]
    return found + _cut(tokens, (done, tokens[-1].span[1]))


def _around(
    tokens: Sequence[Token], kept: Sequence[Placeholder], places: Sequence[int]
) -> dict[Placeholder, str]:
    """Placeholders around words and whole elements, each with a name that it shares with its
    partner. Those around words only are found when the words are read."""
    found: dict[Placeholder, str] = {}
    opened: list[Placeholder] = []
    for placeholder in kept:
        if placeholder.kind == "open":
            opened.append(placeholder)
        elif placeholder.kind == "close":
            partner = opened.pop()
            span = (places[partner.span[0]], places[placeholder.span[1] - 1] + 1)
            if _divided(tokens, span) and _balanced(_cut(tokens, span), span) == span:
                found[partner] = found[placeholder] = f"{{{places[partner.span[0]]}}}"
    return found


def _shown(source: str, token: Token) -> str:
    return (
        source[slice(*token.span)]
        if token.kind == "text"
        else " " * (token.kind in ("kept", "space"))
    )


def _shown_places(source: str, token: Token) -> range:
    begin = token.span[0]
    return range(begin, begin + len(_shown(source, token)))


def _within(tokens: Sequence[Token], span: Span) -> range:
    """Indices of the tokens that overlap a span."""
    first = bisect_right(tokens, span[0], key=lambda token: token.span[1])
    return range(first, max(first, bisect_left(tokens, span[1], key=lambda token: token.span[0])))


def _cut(tokens: Sequence[Token], span: Span) -> list[Token]:
    """The tokens within a span, and the cut parts of text tokens."""
    found = []
    for index in _within(tokens, span) if span[0] < span[1] else ():
        token = tokens[index]
        part = (max(span[0], token.span[0]), min(span[1], token.span[1]))
        found.append(token if token.span == part else Token(token.kind, part, token.name))
    return found


def _divided(tokens: Sequence[Token], span: Span) -> bool:
    """Whether a span covers several tokens."""
    return len(_within(tokens, span)) > 1


def _tags_beside(tokens: Sequence[Token], span: Span) -> tuple[Token | None, Token | None]:
    """The opening tag right before a span and the closing tag right after it."""
    inside = _within(tokens, span)
    before = tokens[max(0, inside.start - 1) : inside.start]
    after = tokens[inside.stop : inside.stop + 1]
    opening = next((t for t in before if t.kind == "open" and t.span[1] == span[0]), None)
    closing = next((t for t in after if t.kind == "close" and t.span[0] == span[1]), None)
    return opening, closing


def _with_elements(tokens: Sequence[Token], span: Span) -> Span:
    """The span extended to elements that contain nothing else."""
    while True:
        opening, closing = _tags_beside(tokens, span)
        if not (opening and closing and opening.name == closing.name):
            return span
        span = (opening.span[0], closing.span[1])


def _with_tags(tokens: Sequence[Token], span: Span) -> Span:
    """A text within a message, extended to adjacent tags whose partners are within it."""
    return _balanced(tokens, span) or span


def _balanced(tokens: Sequence[Token], span: Span) -> Span | None:
    """The span extended to adjacent tags whose partners are within it; None if others intervene."""
    opened = closed = 0
    for token in _cut(tokens, span):
        if token.kind == "open":
            opened += 1
        elif token.kind == "close" and opened:
            opened -= 1
        elif token.kind == "close":
            closed += 1
    while closed and (opening := _tags_beside(tokens, span)[0]):
        span, closed = (opening.span[0], span[1]), closed - 1
    while opened and (closing := _tags_beside(tokens, span)[1]):
        span, opened = (span[0], closing.span[1]), opened - 1
    return None if opened or closed else span
