"""Texts within markup beside the words of a page: attributes of HTML that are read out or shown,
and alternative texts of pictures in Markdown.

A translation keeps the markup of its source, so these texts can be found in it again.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from serving.documents.texts.slots import Slot
from serving.documents.unit import Unit
from serving.text.formats.markup import end_of_element, is_verbatim, stays
from serving.text.formats.tags import HtmlPiece, html_pieces

Find = Callable[[str], Iterable[Slot]]
"""Finds the texts in a page, in order."""

_ATTRIBUTES = frozenset(("alt", "title", "placeholder", "aria-label"))


def aside_units(pages: Iterable[str], find: Find) -> list[Unit]:
    """Units for the texts with words that `find` returns for some pages, each text once."""
    return list(dict.fromkeys(slot.unit for page in pages for slot in find(page)))


def with_asides(page: str, find: Find, translations: Mapping[Unit, str]) -> str:
    """A translated page with the translations of its `aside_units` in their places."""
    if not translations:
        return page
    written, done = [], 0
    for slot in find(page):
        text = translations.get(slot.unit, slot.unit.text)
        if text != slot.unit.text:
            written += [page[done : slot.begin], slot.written(text)]
            done = slot.end
    return "".join([*written, page[done:]])


def html_asides(page: str) -> Iterator[Slot]:
    """Yield the attributes of HTML that a reader sees or hears: `alt`, `title`, `placeholder`,
    `aria-label`, and the description of a page. Elements that are not to be translated are
    skipped."""
    pieces = list(html_pieces(page))
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        if piece.kind in ("start", "empty") and not stays(piece):
            yield from _attributes(page, piece)
        if is_verbatim(piece, ()):
            index = end_of_element(pieces, index)
        index += 1


def _attributes(page: str, tag: HtmlPiece) -> Iterator[Slot]:
    wanted = _ATTRIBUTES
    if tag.name == "meta" and tag.attribute("name").lower() == "description":
        wanted = frozenset(("content",))
    for name, (begin, end) in tag.values():
        if name not in wanted:
            continue
        written = page[begin:end]
        quote = written[0] if written[:1] in ("'", '"') else ""
        text = html.unescape(written[len(quote) : len(written) - len(quote)])
        # A text that a template's code cuts in two is left out.
        if any(map(str.isalpha, text)) and text.count("{") == text.count("}"):
            yield Slot(begin, end, Unit(text), functools.partial(_as_value, quote or '"'))


def _as_value(quote: str, text: str) -> str:
    shown = html.escape(text, quote=False)
    return quote + shown.replace(quote, "&quot;" if quote == '"' else "&#39;") + quote


def markdown_asides(page: str) -> Iterator[Slot]:
    """Yield the alternative texts of Markdown's pictures, `![here](address)`. A name that refers to
    an address defined elsewhere stays."""
    if "![" not in page:
        return
    from serving.text.formats.markdown import picture_texts  # its parser takes a while to import

    for begin, end in picture_texts(page):
        text = page[begin:end]
        if any(map(str.isalpha, text)):
            yield Slot(begin, end, Unit(text, "markdown"), functools.partial(_as_label, text))


def _as_label(source: str, text: str) -> str:
    """A translation for a place between brackets; the source if the translation's own brackets
    would end the picture's text."""
    inside = re.sub(r"\\.|[^\[\]]", "", text)
    while "[]" in inside:
        inside = inside.replace("[]", "")
    return source if inside or "\n" in text else text
