"""Books in EPUB: their chapters, and the table of contents."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote
from xml.sax.saxutils import escape

from serving.documents.plain import read_html
from serving.documents.raw.archive import Archive
from serving.documents.raw.encoding import XML, decoded
from serving.documents.texts.direction import is_right_to_left
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile
from serving.errors import DocumentError

_CHAPTER = re.compile(r"\.x?html?\Z", re.IGNORECASE)
_CONTENTS = re.compile(r"\.ncx\Z", re.IGNORECASE)
_LABEL = re.compile(r"<(?:\w+:)?text(?:\s[^>]*)?>([^<]*)</")
_RECORD = re.compile(r"\.opf\Z", re.IGNORECASE)
_ITEM = re.compile(r"<(?:\w+:)?item\s[^>]*>")
_ADDRESS = re.compile(r"""\shref\s*=\s*(["'])(.*?)\1""")
_PAGE = re.compile(r"""\smedia-type\s*=\s*["']application/xhtml\+xml["']""")
_SHOWN = re.compile(r"<dc:(?:title|description)(?:\s[^>]*)?>([^<]*)</")
_LANGUAGE = re.compile(r"(<dc:language(?:\s[^>]*)?>)[^<]*(</)")
_SPINE = re.compile(r"<(?:\w+:)?spine\b[^>]*?(?=\s*/?>)")
_PROGRESSION = re.compile(r"""\spage-progression-direction\s*=\s*(?:"[^"]*"|'[^']*')""")
_RIGHTS = "META-INF/encryption.xml"
_FONTS = re.compile(rb"http://(?:www\.idpf\.org/2008/embedding|ns\.adobe\.com/pdf/enc#RC)")
_METHOD = re.compile(rb"<(?:\w+:)?EncryptionMethod\b[^>]*>")


@dataclass(frozen=True)
class _Part:
    name: str
    file: FileInUnits


def read_epub(content: bytes, target: str = "") -> FileInUnits:
    """Read a book: its chapters as pages of HTML, the labels of its table of contents, its title
    and its description. The translated book names `target` as its language, and its pages turn in
    that language's direction. Raises DocumentError for a book whose text is encrypted."""
    archive = Archive(content)
    if _RIGHTS in archive.names and any(
        not _FONTS.search(method) for method in _METHOD.findall(archive.read(_RIGHTS))
    ):
        raise DocumentError("the book is locked by digital rights; translate one that is not")
    parts = list(_parts(archive, target))
    units = [unit for part in parts for unit in part.file.units]

    def write(translations: Sequence[Translated]) -> WrittenFile:
        others, done = {}, 0
        warnings: list[str] = []
        for part in parts:
            own = translations[done : done + len(part.file.units)]
            done += len(own)
            written = part.file.write(own)
            if written.content != archive.read(part.name):
                others[part.name] = [written.content]
            warnings += written.warnings
        return WrittenFile(archive.written(others), tuple(dict.fromkeys(warnings)))

    return FileInUnits(units, write)


def _parts(archive: Archive, target: str) -> Iterator[_Part]:
    chapters = set(_chapters(archive))
    for name in archive.names:
        if _CHAPTER.search(name) or name in chapters:
            yield _Part(name, read_html(archive.read(name), target))
        elif _CONTENTS.search(name):
            yield _Part(name, _of_slots(archive.read(name), _LABEL))
        elif _RECORD.search(name):
            record = decoded(archive.read(name), XML)
            text = _in_language(record.text, target) if target else record.text
            yield _Part(name, _of_slots(record.encoded(text).content, _SHOWN))


def _chapters(archive: Archive) -> Iterator[str]:
    """The parts that the book's package document lists as pages, whatever their names are."""
    for name in archive.names:
        if _RECORD.search(name):
            for item in _ITEM.findall(decoded(archive.read(name), XML).text):
                address = _ADDRESS.search(item)
                if address and _PAGE.search(item):
                    folder = posixpath.dirname(name)
                    yield posixpath.normpath(posixpath.join(folder, unquote(address[2])))


def _of_slots(content: bytes, pattern: re.Pattern[str]) -> FileInUnits:
    """A file whose units are the texts in the first group of each match of a pattern."""
    source = decoded(content, XML)
    found = pattern.finditer(source.text)
    slots = [Slot(*match.span(1), Unit(match[1], "xml"), str) for match in found]
    return file_with_slots(source, slots)


def _in_language(record: str, target: str) -> str:
    """The book's package document, with another language."""
    record = _LANGUAGE.sub(lambda found: found[1] + escape(target) + found[2], record, count=1)
    spine = _SPINE.search(record)
    if spine is None:
        return record
    tag = _PROGRESSION.sub("", spine[0])
    if is_right_to_left(target):
        tag += ' page-progression-direction="rtl"'
    return record[: spine.start()] + tag + record[spine.end() :]
