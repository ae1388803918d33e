"""Books in EPUB: their chapters, and the table of contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.documents.archive import Archive
from serving.documents.encoding import decoded
from serving.documents.plain import read_html
from serving.documents.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile
from serving.errors import DocumentError

_CHAPTER = re.compile(r"\.x?html?\Z", re.IGNORECASE)
_CONTENTS = re.compile(r"\.ncx\Z", re.IGNORECASE)
_LABEL = re.compile(r"<(?:\w+:)?text(?:\s[^>]*)?>([^<]*)</")
_RIGHTS = "META-INF/encryption.xml"
_FONTS = re.compile(rb"http://(?:www\.idpf\.org/2008/embedding|ns\.adobe\.com/pdf/enc#RC)")
_METHOD = re.compile(rb"<(?:\w+:)?EncryptionMethod\b[^>]*>")


@dataclass(frozen=True)
class _Part:
    name: str
    file: FileInUnits


def read_epub(content: bytes) -> FileInUnits:
    """The chapters of a book as pages of HTML, and the labels of its table of contents. Raises
    DocumentError for a book whose text is locked."""
    archive = Archive(content)
    if _RIGHTS in archive.names and any(
        not _FONTS.search(method) for method in _METHOD.findall(archive.read(_RIGHTS))
    ):
        raise DocumentError("the book is locked by digital rights; translate one that is not")
    parts = list(_parts(archive))
    units = [unit for part in parts for unit in part.file.units]

    def write(translations: Sequence[Translated]) -> WrittenFile:
        others, done = {}, 0
        warnings: list[str] = []
        for part in parts:
            own = translations[done : done + len(part.file.units)]
            done += len(own)
            if own:
                written = part.file.write(own)
                others[part.name] = [written.content]
                warnings += written.warnings
        return WrittenFile(archive.written(others), tuple(dict.fromkeys(warnings)))

    return FileInUnits(units, write)


def _parts(archive: Archive) -> Iterator[_Part]:
    for name in archive.names:
        if _CHAPTER.search(name):
            yield _Part(name, read_html(archive.read(name)))
        elif _CONTENTS.search(name):
            source = decoded(archive.read(name))
            slots = [
                Slot(*match.span(1), Unit(match[1], "xml"), str)
                for match in _LABEL.finditer(source.text)
            ]
            yield _Part(name, file_with_slots(source, slots))
