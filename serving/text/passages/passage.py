"""A stretch of text between two boundaries, with the markup inside it.

Its text is what a reader sees. Its sentences are translated; the rest stays as written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from serving.text.alignment import Span

Markup = Literal["text", "html", "xml", "cdata"]
"""The format of a text, which decides how characters are escaped."""
CDATA = "<![CDATA["
"""Start of an XML section that is written as `cdata`."""


_NONE: Mapping[str, str] = {}
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escaped(text: str, markup: Markup, quotes: Mapping[str, str] = _NONE) -> str:
    """Escape text between tags; with `quotes`, quotation marks too."""
    if quotes:
        text = "".join(quotes.get(sign, sign) for sign in text)
    return text.translate(_ESCAPED) if markup in ("html", "xml") else text


@dataclass
class Inline:
    """Markup inside a passage: an element with content, or a single object without any."""

    begin: int
    end: int
    """Span in the passage's text."""
    opening: str
    closing: str = ""
    children: list[Inline] = field(default_factory=list)
    masked: bool = False
    """The object is read as the word `text[begin:end]` (its mask), so that the model sees a full
    sentence."""
    figure: bool = False
    """The object is a number in the format of its language."""
    found_as: frozenset[str] = frozenset()
    """Words of a translation that stand for the object instead of its mask, in small letters: the
    object is `&`, and its mask a word for it. A translation may have none."""
    before: str = ""
    after: str = ""
    """White space beside an object without words; the text does not contain it."""
    joined: bool = False
    """The text has a space after the object that is not written: the object joins two words."""
    parts: list[Passage | str] = field(default_factory=list)
    """Parts of a masked object, if some of them are translated separately."""

    @property
    def empty(self) -> bool:
        """Whether it is an object without text."""
        return self.begin == self.end and not self.children


@dataclass(frozen=True, slots=True)
class Origins:
    """Source spans, one for each character of a text, in an eighth of the memory of pairs."""

    begins: array[int]
    ends: array[int]

    def __getitem__(self, index: int) -> Span:
        return self.begins[index], self.ends[index]

    def __iter__(self) -> Iterator[Span]:
        return zip(self.begins, self.ends, strict=True)


@dataclass
class Passage:
    """A stretch of a document that is translated separately: a line, a cell, a block of markup."""

    source: str
    """The text of the request."""
    text: str
    """The visible text, with masks in place of kept objects."""
    origins: Origins
    """Source span of each character of `text`; the characters of an object share its span."""
    inlines: list[Inline]
    masked: list[Inline]
    """The masked objects, in order, at any depth."""
    span: Span
    """Span of the passage in `source`."""
    markup: Markup = "text"
    """The format. In XML, an element that had words keeps some."""
    quotes: dict[str, str] = field(default_factory=dict)
    """Written forms of quotation marks with an escape before them: `\\'`, `''`."""
    sentences: list[Span] = field(default_factory=list)
    """Spans of the sentences to translate."""

    def symbols(self) -> Iterator[tuple[int, str]]:
        """The objects without text before white space, and their places."""
        for inline in self.inlines:
            begin = inline.begin
            if inline.empty and (inline.after or self.text[begin : begin + 1].isspace()):
                yield begin, inline.opening

    def origin(self, span: Span) -> Span:
        """Source span of a non-empty part of the text."""
        return self.origins[span[0]][0], self.origins[span[1] - 1][1]

    def cuts(self) -> Iterator[int]:
        """Yield positions in `source`, outside of markup, between the end of one sentence and the
        beginning of the next."""
        beside = bytearray(len(self.text) + 1)
        for inline in self.inlines:
            beside[inline.begin : inline.end + 1] = b"\1" * (inline.end + 1 - inline.begin)
        for (_, end), (begin, _) in pairwise(self.sentences):
            place = beside.find(0, end, begin + 1)
            if place >= 0:
                yield self.origins[place][0]

    def written(self, index: int) -> str:
        """A character as written in the source; an object is written at its first character."""
        origin = self.origins[index]
        if index and self.origins[index - 1] == origin:
            return ""
        return self.source[slice(*origin)]
