"""Texts, presentations and sheets of OpenDocument: the paragraphs with words, and their spans."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lxml import etree

from serving.documents.office.blocks import Role, in_utf_8
from serving.documents.office.paragraph import (
    MACROS,
    SIGNED,
    Paragraph,
    PartReading,
    office_file,
)
from serving.documents.raw.archive import Archive
from serving.documents.texts.direction import turn
from serving.documents.texts.markup import Inline, Thing, Words, Wrap, line_of
from serving.documents.unit import FileInUnits, Translated, WrittenFile
from serving.errors import DocumentError

_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_SLIDES = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_PART = re.compile(r"(?:content|styles)\.xml\Z|(?:Object[^/]*/)+content\.xml\Z")
"""Names of the document's own parts, and of those of charts and documents in it."""
_MANIFEST = "META-INF/manifest.xml"
_SIGNATURES = "META-INF/documentsignatures.xml"
_WRAPS = frozenset((f"{_TEXT}span", f"{_TEXT}a", f"{_TEXT}meta"))
_BREAKS = frozenset((f"{_TEXT}line-break", f"{_TEXT}tab"))
_PARAGRAPHS = frozenset(
    (f"{_TEXT}p", f"{_TEXT}h", f"{_SLIDES}header-decl", f"{_SLIDES}footer-decl")
)
_CELL = f"{_TABLE}table-cell"
_VALUE = f"{_OFFICE}string-value"
"""The text of a cell, which hides its paragraphs. LibreOffice writes it for computed cells only."""
_UNREAD = frozenset((f"{_TEXT}tracked-changes",))
"""Elements with text that has been deleted."""
_WRITING = re.compile(rb"""(\bstyle:writing-mode\s*=\s*["'])(lr|rl)(-tb["'])""")
_DEFAULT = re.compile(
    rb"""(<style:default-style\s[^>]*family=["']paragraph["'][^>]*>\s*<style:paragraph-properties\b"""
    rb"[^>]*?)(/?>)"
)
_SPACES = re.compile(r"[ \t\r\n]+")


def read_odf(content: bytes, target: str = "") -> FileInUnits:
    """Read the paragraphs of an OpenDocument file, including those of cells, notes, headers and
    frames. If the `target` language runs the other way, pages, paragraphs and sheets are turned."""
    archive = Archive(content)
    if _MANIFEST in archive.names and b":encryption-data" in archive.read(_MANIFEST):
        raise DocumentError("the file is locked with a password; remove it and try again")
    names = [name for name in archive.names if _PART.match(name)]
    file = office_file(archive, names, PartReading(_take, _paragraphs))
    signed = [name for name in archive.names if name == _SIGNATURES]

    right = turn("\n".join(unit.text for unit in file.units), target)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        others: dict[str, Iterable[bytes]] = {**file.written(translations)}
        if right is not None:
            for name in names:
                part = b"".join(others.get(name) or [archive.read(name)])
                others[name] = [_turned(in_utf_8(part, name), right=right)]
        return WrittenFile(archive.written(others, signed))

    warnings = []
    if signed:
        warnings.append(SIGNED)
    if any(name.startswith(("Basic/", "Scripts/")) for name in archive.names):
        warnings.append(MACROS)
    return FileInUnits(file.units, write, warnings=tuple(warnings))


def _turned(content: bytes, *, right: bool) -> bytes:
    """A part whose pages, paragraphs and sheets are turned to run from the right, or from the
    left."""
    before, behind = (b"lr", b"rl") if right else (b"rl", b"lr")
    content = _WRITING.sub(
        lambda found: found[1] + behind + found[3] if found[2] == before else found[0], content
    )
    default = _DEFAULT.search(content)
    if default is None or b"writing-mode" in default[0]:
        return content
    end = default.end() - len(default[2])
    return content[:end] + b' style:writing-mode="' + behind + b'-tb"' + content[end:]


def _take(tag: str, attributes: Mapping[str, str]) -> Role:
    if tag in _UNREAD:
        return "skip"
    if tag == _CELL and _is_computed(attributes):
        return "keep"  # but for its comments
    return "take" if tag in _PARAGRAPHS or (tag == _CELL and _VALUE in attributes) else "enter"


def _paragraphs(root: etree._Element, *, kept: bool = False) -> Iterator[Paragraph]:
    """The paragraphs in an element, and the element itself if it is one that is not kept."""
    role = _take(root.tag, root.attrib) if isinstance(root.tag, str) else "skip"
    if role == "skip":
        return
    if root.tag in _PARAGRAPHS and not kept:
        spans = _SpanReader()
        line = line_of(spans.read(root))
        if line.has_words:
            yield Paragraph(line, functools.partial(_fill, spans, root))
    for child in root:
        yield from _paragraphs(child, kept=role == "keep")


def _fill(spans: _SpanReader, paragraph: etree._Element, inlines: Sequence[Inline]) -> None:
    """Replace a paragraph's content. If it is in a cell, it alone is the cell's text then."""
    spans.fill(paragraph, inlines)
    cell = paragraph.getparent()
    if cell is not None and cell.tag == _CELL:
        cell.attrib.pop(_VALUE, None)


def _is_computed(attributes: Mapping[str, str]) -> bool:
    """Whether a cell's text is computed from its value when the file is opened."""
    kind = attributes.get(f"{_OFFICE}value-type", "string")
    return kind != "string" or f"{_TABLE}formula" in attributes


@dataclass
class _SpanReader:
    """Reads a paragraph's element into inlines, and rebuilds it from others."""

    _elements: list[etree._Element] = field(default_factory=list)

    def read(self, parent: etree._Element) -> list[Inline]:
        """The inlines of an element, which may lie within another one that is read."""
        found: list[Inline] = [Words(_SPACES.sub(" ", parent.text or ""))]
        for child in parent:
            if child.tag == f"{_TEXT}s":
                found.append(Words(" " * _count(child)))
            elif child.tag == f"{_TEXT}ruby":  # guides above the words belong to the old words
                for base in child.findall(f"{_TEXT}ruby-base"):
                    found += self.read(base)
            elif child.tag != f"{_TEXT}soft-page-break":
                self._elements.append(child)
                number = len(self._elements) - 1
                if child.tag in _WRAPS and (len(child) or child.text):
                    found.append(Wrap(number, tuple(self.read(child))))
                else:
                    found.append(Thing(number, divides=child.tag in _BREAKS))
            found.append(Words(_SPACES.sub(" ", child.tail or "")))
        return found

    def fill(self, parent: etree._Element, inlines: Sequence[Inline]) -> None:
        """Replace the element's content with these inlines."""
        for child in list(parent):
            parent.remove(child)
            child.tail = None  # which belongs to the inlines
        parent.text = None
        for inline in inlines:
            match inline:
                case Words(text, _):
                    _append_text(parent, text)
                case Thing(number):
                    parent.append(self._elements[number])
                case Wrap(number, inside):
                    self.fill(self._elements[number], inside)
                    parent.append(self._elements[number])


def _count(spaces: etree._Element) -> int:
    """Number of blanks that an element stands for, at most 1000."""
    number = spaces.get(f"{_TEXT}c", "1")
    return min(int(number), 1000) if number.isdecimal() else 1


def _append_text(parent: etree._Element, text: str) -> None:
    """Append text to the content of an element. Blanks that would be lost become elements."""
    for part in re.findall(r" {2,}|[^ ]+| ", text):
        if part != " " * len(part) or (part == " " and (len(parent) or parent.text)):
            _append_words(parent, part)
        else:
            spaces = etree.SubElement(parent, f"{_TEXT}s")
            if len(part) > 1:
                spaces.set(f"{_TEXT}c", str(len(part)))


def _append_words(parent: etree._Element, text: str) -> None:
    if len(parent):
        last = parent[-1]
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text
