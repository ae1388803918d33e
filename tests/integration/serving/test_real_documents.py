"""Nothing is lost of real documents, and what is not translated of them stays to the byte."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

import pytest

from serving.documents.unit import ReadingWishes
from tests.integration.serving.document_readers import READERS, differences
from tests.integration.serving.real_documents import REAL, Package
from tests.unit.serving.documents.fakes import parts, written
from tests.unit.serving.text.fakes import same

pytestmark = pytest.mark.slow

MESSAGE = re.compile(rb'^(\s*msgstr\S*)[ \t]+".*"(?:\s*\n\s*".*")*', re.MULTILINE)
IN_PARTS = frozenset(("docx", "odp", "ods", "odt", "pptx", "xlsx"))
EACH = pytest.mark.parametrize("package", REAL, ids=lambda p: f"{p.ending}-{Path(p.place).name}")


def found(package: Package) -> list[tuple[str, bytes]]:
    documents = list(package.documents())
    if not documents:
        pytest.skip(f"{package.place} is not here")
    return documents


@pytest.mark.skipif("CI" not in os.environ, reason="packages may be missing on other machines")
@pytest.mark.parametrize("ending", sorted({package.ending for package in REAL}))
def test_each_format_has_a_document_in_ci(ending: str) -> None:
    assert any(any(package.documents()) for package in REAL if package.ending == ending)


@EACH
def test_what_is_translated_into_itself_stays_to_the_byte(package: Package) -> None:
    """But for messages without a translation, which get one."""
    for name, content in found(package):
        result = written(content, PurePath(name).name, same).content
        if package.ending in IN_PARTS:
            assert parts(result) == parts(content), name
        else:
            assert MESSAGE.sub(rb"\1", result) == MESSAGE.sub(rb"\1", content), name


@EACH
def test_another_reader_finds_everything_in_its_place(package: Package) -> None:
    if package.ending not in READERS:
        pytest.skip("opened by LibreOffice")
    wishes = ReadingWishes(retranslate=True)
    for name, content in found(package):
        result = written(content, f"a.{package.ending}", wishes=wishes).content
        assert differences(content, result, package.ending) == [], name
