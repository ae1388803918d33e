"""A paragraph of an office file: what a reader makes of it, and how it gets other words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lxml import etree

from serving.documents.archive import Archive
from serving.documents.markup import Inline, Line
from serving.documents.unit import Translated, Unit, check_lengths
from serving.documents.xml import parsed, serialised

SIGNED = "The file was signed; a translation is another text and has no signature."
MACROS = "The file has macros; they stay as they are and were not run."


@dataclass(frozen=True)
class Paragraph:
    """Words of an element of a tree."""

    line: Line
    fill: Callable[[Sequence[Inline]], None]
    """Gives the element other inlines; each thing and each wrap of it has to come once."""


Paragraphs = Callable[[etree._Element], Iterator[Paragraph]]


def units_of(archive: Archive, names: Sequence[str], paragraphs: Paragraphs) -> list[Unit]:
    """The units of these parts, in order."""
    units = [
        paragraph.line.unit
        for name in names
        for paragraph in paragraphs(parsed(archive.read(name), name).getroot())
    ]
    check_lengths(units)
    return units


def with_translations(
    archive: Archive,
    names: Sequence[str],
    paragraphs: Paragraphs,
    translations: Sequence[Translated],
) -> dict[str, bytes]:
    """Those of the parts that change, with their translations."""
    rest = iter(translations)
    written = {}
    for name in names:
        tree = parsed(archive.read(name), name)
        changed = False
        # All of them before any changes, for one may lie within another.
        for paragraph in list(paragraphs(tree.getroot())):
            translation = next(rest)
            if translation.text != paragraph.line.unit.text:
                paragraph.fill(paragraph.line.translated(translation.text))
                changed = True
        if changed:
            written[name] = serialised(tree)
    return written
