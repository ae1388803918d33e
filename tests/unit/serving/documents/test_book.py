from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from serving.documents.recognition import recognised
from serving.errors import DocumentError
from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import zipped

CHAPTER = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Erstes</title></head>'
    '<body><p>Das <i>rote</i> Haus<img src="a.png" alt="x"/>.</p></body></html>'
)
CONTENTS = (
    "<ncx><docTitle><text>Ein Buch</text></docTitle><navMap><navPoint><navLabel>"
    '<text>Erstes &amp; Zweites</text></navLabel><content src="a.xhtml"/></navPoint></navMap></ncx>'
)


RECORD = (
    "<package><dc:title>Ein Buch</dc:title><dc:creator>Anna Muster</dc:creator><dc:description>"
    "&lt;p&gt;Von einem &lt;b&gt;Haus &amp; mehr&lt;/b&gt;.&lt;/p&gt;</dc:description></package>"
)


def book(**more: str) -> bytes:
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": "<container/>",
            "OEBPS/content.opf": RECORD,
            "OEBPS/a.xhtml": CHAPTER,
            "OEBPS/toc.ncx": CONTENTS,
            "OEBPS/a.png": b"\x89PNG",
            **{f"META-INF/{name}.xml": content for name, content in more.items()},
        }
    )


def test_chapters_and_contents_are_translated_and_all_else_stays() -> None:
    source = book()
    result = translated(source, "a.epub")
    before, after = parts(source), parts(result)
    assert list(before) == list(after)
    assert {n for n in before if before[n] != after[n]} == {
        "OEBPS/content.opf",
        "OEBPS/a.xhtml",
        "OEBPS/toc.ncx",
    }
    assert after["OEBPS/content.opf"].decode() == (
        RECORD.replace("Ein Buch", "EIN BUCH")
        .replace("Von einem", "VON EINEM")
        .replace("Haus &amp; mehr", "HAUS &amp; MEHR")
    )
    assert after["OEBPS/a.xhtml"].decode() == (
        CHAPTER.replace("Erstes", "ERSTES")
        .replace("Das <i>rote</i> Haus", "DAS <i>ROTE</i> HAUS")
        .replace('alt="x"', 'alt="X"')
    )
    assert after["OEBPS/toc.ncx"].decode() == (
        CONTENTS.replace("Ein Buch", "EIN BUCH")
        .replace("Erstes", "ERSTES")
        .replace("Zweites", "ZWEITES")
    )


def test_the_media_type_stays_first_and_unpacked() -> None:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("a.xhtml", CHAPTER, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(BytesIO(translated(out.getvalue(), "a.epub"))) as archive:
        kinds = [(part.filename, part.compress_type) for part in archive.infolist()]
    assert kinds == [("mimetype", zipfile.ZIP_STORED), ("a.xhtml", zipfile.ZIP_DEFLATED)]


def test_a_book_is_known_by_its_content() -> None:
    assert recognised(book(), "a.zip").name == "epub"


def test_a_locked_book_is_refused_and_one_with_locked_fonts_is_not() -> None:
    method = '<enc:EncryptionMethod Algorithm="{}"/>'
    fonts = method.format("http://www.idpf.org/2008/embedding")
    assert recognised(book(encryption=fonts), "a.epub").read(book(encryption=fonts)).units
    locked = book(encryption=method.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc"))
    with pytest.raises(DocumentError, match="digital rights"):
        recognised(locked, "a.epub").read(locked)


def test_chapters_are_what_the_record_says_whatever_they_are_called() -> None:
    items = (
        '<item id="a" href="text/erstes%20.xml" media-type="application/xhtml+xml"/>'
        "<item media-type='application/xhtml+xml' href='../zweites' id='b'/>"
        '<item id="c" href="daten.xml" media-type="application/xml"/>'
    )
    source = zipped(
        {
            **parts(book()),
            "OEBPS/content.opf": f"<package><manifest>{items}</manifest></package>",
            "OEBPS/text/erstes .xml": CHAPTER,
            "zweites": CHAPTER,
            "OEBPS/daten.xml": CHAPTER,
        }
    )
    after = parts(translated(source, "a.epub"))
    expected = after["OEBPS/a.xhtml"]
    assert b"ERSTES" in expected
    assert after["OEBPS/text/erstes .xml"] == after["zweites"] == expected
    assert after["OEBPS/daten.xml"].decode() == CHAPTER
