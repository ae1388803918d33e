"""A paragraph of an office file as a reader returns it, and the way to replace its words."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lxml import etree

from serving.documents.office.blocks import OfficeBlock, Take, block_as_bytes, blocks_of, in_utf_8
from serving.documents.raw.archive import Archive
from serving.documents.texts.markup import Inline, Line
from serving.documents.unit import Translated, Unit, check_lengths

SIGNED = "The file was signed; the translation is a different text and has no signature."
MACROS = "The file has macros; they stay as they are and were not run."


@dataclass(frozen=True)
class Paragraph:
    """The words of an element of a tree, and functions that replace them."""

    line: Line
    fill: Callable[[Sequence[Inline]], None]
    """Replaces the element's inlines; every object and every wrap must occur exactly once."""
    follow: Callable[[Sequence[Inline]], None] | None = None
    """Does the same, but keeps a copy of the source before the element; None if there is no room
    for both."""


@dataclass(frozen=True)
class PartReading:
    """Functions that read the parts of one kind of file."""

    take: Take
    paragraphs: Callable[[etree._Element], Iterator[Paragraph]]
    """Yields the paragraphs in an element with blocks."""


@dataclass(frozen=True)
class OfficeFile:
    """An office file in which the blocks have been found."""

    archive: Archive
    reading: PartReading
    units: Sequence[Unit]
    blocks: Mapping[str, Sequence[tuple[OfficeBlock, int]]]
    """The blocks with words in each part, each with its number of units."""

    def written(
        self, translations: Sequence[Translated], *, bilingual: bool = False
    ) -> dict[str, Iterator[bytes]]:
        """Yield the parts with their translations, piece by piece; with `bilingual` the source
        stands before each of them. Bytes only change where words do."""
        pairs = list(zip(self.units, translations, strict=True))
        written, done = {}, 0
        for name, blocks in self.blocks.items():
            own = pairs[done : done + sum(count for _, count in blocks)]
            done += len(own)
            if any(unit.text != translation.text for unit, translation in own):
                written[name] = self._pieces(name, iter(own), bilingual)
        return written

    def _pieces(
        self, name: str, pairs: Iterator[tuple[Unit, Translated]], bilingual: bool
    ) -> Iterator[bytes]:
        content = in_utf_8(self.archive.read(name), name)
        at = 0
        for block, count in self.blocks[name]:
            own = list(itertools.islice(pairs, count))
            if all(unit.text == translation.text for unit, translation in own):
                continue
            tree = block.tree(content, name)
            # All of them before any changes, for one may lie within another: the inner one comes
            # later, and has to be done first, to be in the source of the outer one.
            found = list(zip(self.reading.paragraphs(tree), own, strict=True))
            for paragraph, (unit, translation) in reversed(found):
                if translation.text != unit.text:
                    put = (bilingual and paragraph.follow) or paragraph.fill
                    put(paragraph.line.translated(translation.text))
            yield content[at : block.begin]
            yield block_as_bytes(tree)
            at = block.end
        yield content[at:]


def office_file(archive: Archive, names: Sequence[str], reading: PartReading) -> OfficeFile:
    """The file with the units of these parts, in order. Raises DocumentError and TooLongError."""
    units: list[Unit] = []
    blocks: dict[str, list[tuple[OfficeBlock, int]]] = {}
    for name in names:
        content = in_utf_8(archive.read(name), name)
        found = blocks[name] = []
        for block in blocks_of(content, name, reading.take):
            own = [p.line.unit for p in reading.paragraphs(block.tree(content, name))]
            if own:
                units += own
                found.append((block, len(own)))
    check_lengths(units)
    return OfficeFile(archive, reading, units, blocks)
