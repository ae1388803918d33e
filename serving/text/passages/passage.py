"""A stretch of text between two boundaries, with the markup inside it.

Its text is what a reader sees. Sentences of it are translated; the rest stays as it was written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from serving.text.alignment import Span

Markup = Literal["text", "html", "xml", "cdata"]
"""What a text is written as, which says how its signs are."""
CDATA = "<![CDATA["
"""What begins a section of XML that is written as `cdata`."""


_NONE: Mapping[str, str] = {}
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escaped(text: str, markup: Markup, quotes: Mapping[str, str] = _NONE) -> str:
    """As text between tags is written, and `quotes` in it."""
    if quotes:
        text = "".join(quotes.get(sign, sign) for sign in text)
    return text.translate(_ESCAPED) if markup in ("html", "xml") else text


@dataclass
class Inline:
    """Markup inside a passage: an element with its content, or a single thing without any."""

    begin: int
    end: int
    """In the passage's text."""
    opening: str
    closing: str = ""
    children: list[Inline] = field(default_factory=list)
    masked: bool = False
    """A word, `text[begin:end]`, stands for the thing, so that models read a whole sentence."""
    figure: bool = False
    """It is written as the target's language writes figures."""
    before: str = ""
    after: str = ""
    """White space beside a thing without words, which the text does not have."""
    joined: bool = False
    """The text has a space behind it that is not written, for it stands between two words."""
    parts: list[Passage | str] = field(default_factory=list)
    """What a masked thing is made of, where some of that is translated by itself."""

    @property
    def empty(self) -> bool:
        """Whether it is a thing without any text."""
        return self.begin == self.end and not self.children


@dataclass(frozen=True, slots=True)
class Origins:
    """Spans, one for each character of a text, in an eighth of the memory of pairs."""

    begins: array[int]
    ends: array[int]

    def __getitem__(self, index: int) -> Span:
        return self.begins[index], self.ends[index]

    def __iter__(self) -> Iterator[Span]:
        return zip(self.begins, self.ends, strict=True)


@dataclass
class Passage:
    """A stretch of a document that is translated for itself: a line, a cell, a block of markup."""

    source: str
    """The request's text."""
    text: str
    """What a reader sees, with words in place of things that are kept."""
    origins: Origins
    """Where in `source` each character of `text` was; those of one thing were in one place."""
    inlines: list[Inline]
    masked: list[Inline]
    """Those for which words of the passage stand, in order, whatever elements they are in."""
    span: Span
    """All of it in `source`."""
    markup: Markup = "text"
    """What it is written as. In XML no element that had words is left without any."""
    quotes: dict[str, str] = field(default_factory=dict)
    """Quotation marks and apostrophes that are written with a sign before them: `\\'`, `''`."""
    sentences: list[Span] = field(default_factory=list)
    """What is translated."""

    def origin(self, span: Span) -> Span:
        """Where in `source` a part of the text was that is not empty."""
        return self.origins[span[0]][0], self.origins[span[1] - 1][1]

    def cuts(self) -> Iterator[int]:
        """Where in `source` one sentence has ended and no other has begun, outside of markup."""
        beside = bytearray(len(self.text) + 1)
        for inline in self.inlines:
            beside[inline.begin : inline.end + 1] = b"\1" * (inline.end + 1 - inline.begin)
        for (_, end), (begin, _) in pairwise(self.sentences):
            place = beside.find(0, end, begin + 1)
            if place >= 0:
                yield self.origins[place][0]

    def written(self, index: int) -> str:
        """A character as it was written; a thing is written at its first character."""
        origin = self.origins[index]
        if index and self.origins[index - 1] == origin:
            return ""
        return self.source[slice(*origin)]
