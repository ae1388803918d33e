"""From the tokens of a text to its passages: which markup is inside one, and which is between."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Literal

from serving.text.alignment import Span
from serving.text.passage import Inline, Passage
from serving.text.placeholders import numbered_tags, placeholder_spans

MASKS = ("Tom", "Boston", "Paris", "London", "John")
"""Words that stand for placeholders in what a model reads: names that models copy most
reliably (docs/decisions.md)."""
MAX_DEPTH = 64
"""Elements within each other in a passage; deeper ones divide the text."""
_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?")
_SPACES = dict.fromkeys(map(ord, "\t\n\f\r"), " ")


@dataclass(frozen=True)
class Token:
    """A part of a text: its span, and what it is.

    `open` and `close` are tags of an element whose content is read; `thing` is markup without
    words; `kept` stands for a word of the sentence and is not translated; `boundary` divides.
    """

    kind: Literal["text", "open", "close", "thing", "kept", "boundary"]
    span: Span
    name: str = ""


def plain_tokens(text: str) -> Iterator[Token]:
    """Tokens of a plain text, in which only numbered tags are markup."""
    return with_numbered_tags(text, (0, len(text)))


def with_numbered_tags(source: str, span: Span) -> Iterator[Token]:
    """Text, and the numbered tags in it."""
    begin, end = span
    done = begin
    for (first, last), name, kind in numbered_tags(source[begin:end]):
        if begin + first > done:
            yield Token("text", (done, begin + first))
        done = begin + last
        yield Token(kind, (begin + first, done), name)
    if end > done:
        yield Token("text", (done, end))


def read_parts(source: str, tokens: Sequence[Token], *, html: bool) -> Iterator[Passage | str]:
    """The passages, and what stands between them."""
    pairs = _pairs(tokens)
    masks = _masks(source)
    builder = _Builder(source, masks, html=html)
    for index, token in enumerate(tokens):
        if token.kind in ("open", "close") and index not in pairs:
            token = Token("boundary", token.span)
        if token.kind == "boundary":
            yield from builder.finished()
            yield source[slice(*token.span)]
            builder = _Builder(source, masks, html=html)
        else:
            builder.add(token)
    yield from builder.finished()


def _pairs(tokens: Sequence[Token]) -> set[int]:
    """Tags that belong together, with no boundary between them.

    Any other tag is a boundary itself. So what is nested wrongly keeps its place, and browsers read
    the translation as they read the original.
    """
    found: set[int] = set()
    stack: list[int] = []
    names: Counter[str] = Counter()
    divided = 0  # elements from the bottom of the stack that have a boundary in them
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


class _Builder:
    """A passage in the making."""

    def __init__(self, source: str, masks: Iterator[str], *, html: bool) -> None:
        self._source, self._masks, self._html = source, masks, html
        self._text: list[str] = []
        self._length = 0
        self._origins: list[Span] = []
        self._top = Inline(0, 0, "")
        self._open = [self._top]
        self._span: Span | None = None
        self._after_mask = False

    def add(self, token: Token) -> None:
        """Append a token that is no boundary."""
        begin, end = token.span
        self._span = (self._span[0] if self._span else begin, end)
        if token.kind == "text":
            self._read(begin, end)
        elif token.kind == "close":
            element = self._open.pop()
            element.end, element.closing = self._length, self._source[begin:end]
        elif token.kind == "kept":
            self._keep(begin, end)
        else:
            inline = Inline(self._length, self._length, self._source[begin:end])
            self._open[-1].children.append(inline)
            if token.kind == "open":
                self._open.append(inline)

    def finished(self) -> Iterator[Passage | str]:
        """The passage; or its text as it is, where there is nothing to read."""
        text = "".join(self._text)
        if text and not text.isspace():
            inlines = self._top.children
            yield Passage(self._source, text, self._origins, inlines, escaped=self._html)
        elif self._span:
            yield self._source[slice(*self._span)]

    def _read(self, begin: int, end: int) -> None:
        text, origins = self._source[begin:end], [(at, at + 1) for at in range(begin, end)]
        if self._html:
            text, origins = _unescaped(text, origins)
        done = 0
        for first, last in placeholder_spans(text):
            self._append(text[done:first], origins[done:first])
            self._keep(origins[first][0], origins[last - 1][1])
            done = last
        self._append(text[done:], origins[done:])

    def _keep(self, begin: int, end: int) -> None:
        mask = next(self._masks)
        self._part(begin)
        kept = Inline(self._length, self._length + len(mask), self._source[begin:end], masked=True)
        self._open[-1].children.append(kept)
        self._push(mask, [(begin, end)] * len(mask))
        self._after_mask = True

    def _append(self, text: str, origins: Sequence[Span]) -> None:
        if text:
            if self._after_mask and text[0].isalnum():
                self._part(origins[0][0])
            self._push(text, origins)
            self._after_mask = False

    def _part(self, place: int) -> None:
        """Put a space that is not written between a mask and a word that it touches."""
        if self._text and self._text[-1][-1].isalnum():
            self._push(" ", [(place, place)])

    def _push(self, text: str, origins: Sequence[Span]) -> None:
        self._text.append(text)
        self._origins.extend(origins)
        self._length += len(text)


def _unescaped(raw: str, origins: Sequence[Span]) -> tuple[str, list[Span]]:
    """What a reader sees: references resolved, line breaks as spaces."""
    text: list[str] = []
    places: list[Span] = []
    done = 0
    for match in _REFERENCE.finditer(raw):
        begin, end = match.span()
        text.append(raw[done:begin])
        places.extend(origins[done:begin])
        characters = unescape(match[0])
        text.append(characters)
        if len(characters) == end - begin:  # no reference after all
            places.extend(origins[begin:end])
        else:
            places.extend([(origins[begin][0], origins[end - 1][1])] * len(characters))
        done = end
    text.append(raw[done:])
    places.extend(origins[done:])
    return "".join(text).translate(_SPACES), places


def _masks(source: str) -> Iterator[str]:
    """Words for placeholders that do not stand in the text otherwise."""
    free = [name for name in MASKS if name.lower() not in source.lower()]
    return itertools.cycle(
        free or [next(f"X{n}" for n in itertools.count() if f"X{n}" not in source)]
    )
