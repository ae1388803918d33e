"""Headers and footers of Excel's printed pages, which are three parts in one text with codes.

The codes are those of SpreadsheetML (ECMA-376, part 1, 18.3.1.39 and .46): `&L`, `&C` and `&R`
begin the parts, `&P` and the like are fields, others are for style, and `&&` is the character
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lxml import etree

from serving.documents.office.paragraph import Paragraph
from serving.documents.texts.markup import Inline, Thing, Words, Wrap, line_of

PRINTED = frozenset(
    ("oddHeader", "oddFooter", "evenHeader", "evenFooter", "firstHeader", "firstFooter")
)
"""The elements of a sheet that contain headers and footers."""
_LONGEST = 255
"""Largest number of characters that Excel accepts; a longer text would make the file damaged."""
_PART = re.compile(r"((?:(?!&[LCRlcr])(?:&.|[^&]|&\Z))*)(&[LCRlcr]|\Z)", re.DOTALL)
_CODE = re.compile(
    r"&(?:(?P<sign>&)|(?P<field>[PNDTFAZpndtfaz](?:[+-]\d+)?)"
    r'|(?P<style>"[^"]*"|\d+|K(?:[0-9A-Fa-f]{6}|\d\d[+-]\d{3})|.))',
    re.DOTALL,
)


def printed_parts(element: etree._Element) -> Iterator[Paragraph]:
    """Yield the left, middle and right part of a header or footer. A part stays as it is if its
    translation would make the text too long for Excel."""
    texts = [piece for found in _PART.finditer(element.text or "") for piece in found.groups()]
    for place in range(0, len(texts), 2):
        yield _Part(element, texts, place).paragraph()


class _Part:
    """A part of a header or footer; it shares the texts of all parts and the codes between them."""

    def __init__(self, element: etree._Element, texts: list[str], place: int) -> None:
        self._element, self._texts, self._place = element, texts, place
        self._codes: list[str] = []

    def paragraph(self) -> Paragraph:
        return Paragraph(line_of(list(self._inlines(self._texts[self._place]))), self._fill)

    def _inlines(self, text: str) -> Iterator[Inline]:
        done = 0
        for code in _CODE.finditer(text):
            yield Words(text[done : code.start()])
            done = code.end()
            if code["sign"]:
                yield Words("&")
                continue
            self._codes.append(code[0])
            # A field shows a number, a date or a name.
            yield Thing(len(self._codes) - 1, word=code[0] if code["field"] else "")
        yield Words(text[done:])

    def _fill(self, inlines: Sequence[Inline]) -> None:
        before = self._texts[self._place]
        self._texts[self._place] = self._written(inlines)
        whole = "".join(self._texts)
        if len(whole) <= _LONGEST:
            self._element.text = whole
        else:
            self._texts[self._place] = before

    def _written(self, inlines: Sequence[Inline]) -> str:
        written = ""
        for inline in inlines:
            match inline:
                case Words(text, _):
                    shown = text.replace("&", "&&")
                    # A digit would belong to the size before it.
                    apart = shown[:1].isdecimal() and re.search(r"(?<!&)(?:&&)*&\d+\Z", written)
                    written += (" " if apart else "") + shown
                case Thing(number):
                    written += self._codes[number]
                case Wrap(_, inside):
                    written += self._written(inside)
        return written
