"""Files that are translated by a fake."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from io import BytesIO

from serving.documents.recognition import recognised
from serving.documents.unit import (
    NO_READING_WISHES,
    ReadingWishes,
    Translated,
    Unit,
    WrittenFile,
)
from serving.text.document import Document
from tests.unit.serving.text.fakes import upper


def rendered(unit: Unit, translate: Callable[[str], Translated] = upper) -> Translated:
    """A unit with the translations of its sentences."""
    document = Document(unit.text, unit.format)
    document.divide("de", lambda sentence: len(sentence) < 2000)
    return document.render([translate(sentence) for sentence in document.sentences])


def written(
    content: bytes,
    name: str,
    translate: Callable[[str], Translated] = upper,
    *,
    bilingual: bool = False,
    wishes: ReadingWishes = NO_READING_WISHES,
) -> WrittenFile:
    """A file, translated."""
    file = recognised(content, name).read(content, wishes)
    write = file.write_bilingual if bilingual else file.write
    assert write
    return write([rendered(unit, translate) for unit in file.units])


def translated(content: bytes, name: str, translate: Callable[[str], Translated] = upper) -> bytes:
    """What a file becomes."""
    return written(content, name, translate).content


def parts(content: bytes) -> dict[str, bytes]:
    """What is in a zip file."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
