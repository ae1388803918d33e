"""Turns tokens into passages: decides which markup is inside a passage and which separates two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from serving.text.alignment import Span
from serving.text.kept.masks import Masks
from serving.text.kept.placeholders import TagKind, likely_tags, numbered_tags
from serving.text.kept.spelling import Unspelt
from serving.text.passages.building import Builder
from serving.text.passages.passage import Markup, Passage

MAX_DEPTH = 64
"""Most nested elements of a passage; deeper ones separate the text."""
_NEIGHBOURS = frozenset(("a", "button", "label"))
_VOID = frozenset(("area", "br", "col", "hr", "img", "input", "link", "meta", "wbr"))
"""Tags that are never closed."""

Kind = Literal["text", "open", "close", "thing", "script", "kept", "space", "boundary"]


@dataclass(frozen=True)
class Token:
    """A part of a text: its span and its kind.

    `open` and `close` are the tags of an element whose content is read. `thing` is markup without
    words. `script` belongs to the text before it. `kept` is read as a word and not translated.
    `space` reads as a space. `boundary` separates passages.
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
    tokens = list(_divided(source, span, likely_tags))
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
    return _divided(source, span, numbered_tags)


def _divided(
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


def read_parts(
    source: str,
    tokens: Sequence[Token],
    markup: Markup,
    masks: Masks | None = None,
    depth: int = 0,
    *,
    unspelt: Unspelt | None = None,
) -> list[Passage | str]:
    """The passages and the text between them. `depth` is the number of ICU messages around the
    tokens; `unspelt` finds text that the vocabulary cannot spell."""
    parts: list[Passage | str] = []
    pairs = paired(tokens)
    masks = masks or Masks(source)
    builder = Builder(source, masks, markup, in_message=depth > 0, unspelt=unspelt)
    for index, token in enumerate(tokens):
        span, kind = token.span, token.kind
        if kind in ("open", "close") and index not in pairs:
            kind = "boundary"
        if kind == "boundary":
            parts += [*builder.finished(), source[slice(*span)]]
            markup_after = token.markup or markup
            builder = Builder(source, masks, markup_after, in_message=depth > 0, unspelt=unspelt)
        elif kind == "text":
            builder.text(span)
        elif kind == "space":
            builder.space(span)
        elif kind == "open":
            builder.open(span, token.markup)
        elif kind == "close":
            builder.close(span)
        elif kind == "thing":
            builder.thing(span)
        elif kind == "script":
            builder.script(span)
        else:
            branches = partial(
                read_parts, markup=markup, masks=masks, depth=depth + 1, unspelt=unspelt
            )
            builder.kept(span, _branches(source, token, branches), figure=token.figure)
    return parts + builder.finished()


def _branches(
    source: str, token: Token, read: Callable[..., list[Passage | str]]
) -> Iterator[Passage | str]:
    """The branches of an ICU message and the text between them. They are read lazily, because their
    masks are assigned after those of the message itself."""
    done = token.span[0]
    for (begin, end), tokens in token.branches:
        yield source[done:begin]
        yield from read(source, tokens)
        done = end
    if token.branches:
        yield source[done : token.span[1]]


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
