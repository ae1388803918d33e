"""Translated books and files of XLIFF, judged by what those who made the formats judge by.

`.ci/run` fetches both where it can: `epubcheck`, and the package of Symfony's translation that
carries the schemas of OASIS.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from lxml import etree

from serving.documents.recognition import recognised
from serving.documents.unit import ReadingWishes
from tests.unit.serving.documents.fakes import rendered

EPUBCHECK = Path("/usr/share/java/epubcheck.jar")
SCHEMAS = Path("/usr/share/php/Symfony/Component/Translation/Resources/schemas")
JAVA = shutil.which("java")


def into(content: bytes, name: str, language: str) -> bytes:
    format = recognised(content, name)
    file = format.read(content, ReadingWishes(target=language))
    return file.write([rendered(unit) for unit in file.units]).content


CHAPTER = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/'
    'xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="de" xml:lang="de"><head><title>Erstes'
    "</title></head><body>{}</body></html>"
)
RECORD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<package xmlns="http://www.idpf.org/2007/opf" '
    'version="3.0" unique-identifier="i"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
    '<dc:identifier id="i">urn:x:1</dc:identifier><dc:title>Ein &amp; Buch</dc:title><dc:language>'
    'de</dc:language><meta property="dcterms:modified">2026-01-01T00:00:00Z</meta></metadata>'
    '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/><item id="n" '
    'href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="t" '
    'href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest><spine toc="t">'
    '<itemref idref="a"/></spine></package>'
)
NCX = (
    '<?xml version="1.0" encoding="utf-8"?>\n<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" '
    'version="2005-1"><head><meta name="dtb:uid" content="urn:x:1"/></head><docTitle><text>Ein '
    'Buch</text></docTitle><navMap><navPoint id="p" playOrder="1"><navLabel><text>Erstes &amp; '
    'Zweites</text></navLabel><content src="a.xhtml"/></navPoint></navMap></ncx>'
)


def book() -> bytes:
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="content.opf" media-type="application/oebps-package+xml"/>'
        "</rootfiles></container>"
    )
    text = (
        "<h1>Das Haus</h1><p>Ein <i>rotes</i> Haus &amp; mehr.<br/>Zwei.</p><ul><li>eins</li></ul>"
    )
    nav = '<nav epub:type="toc"><ol><li><a href="a.xhtml">Erstes</a></li></ol></nav>'
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", container)
        for name, content in (
            ("content.opf", RECORD),
            ("a.xhtml", CHAPTER.format(text * 30)),
            ("nav.xhtml", CHAPTER.format(nav)),
            ("toc.ncx", NCX),
        ):
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not (EPUBCHECK.exists() and JAVA), reason="epubcheck is not installed")
@pytest.mark.parametrize("language", ["en", "ar"])
def test_a_translated_book_is_valid(language: str, tmp_path: Path) -> None:
    file = tmp_path / "a.epub"
    file.write_bytes(into(book(), "a.epub", language))
    assert JAVA
    words = [JAVA, "-jar", str(EPUBCHECK), "--failonwarnings", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


UNITS = (
    '<trans-unit id="1"><source>Das <g id="1">rote</g> Haus<x id="2"/></source><note>hier</note>'
    '</trans-unit><group id="g" translate="no"><trans-unit id="2"><source>Baum</source>'
    '</trans-unit></group><trans-unit id="3"><source>Zwei. Drei.</source><seg-source>'
    '<mrk mtype="seg" mid="1">Zwei.</mrk> <mrk mtype="seg" mid="2">Drei.</mrk></seg-source>'
    '</trans-unit><trans-unit id="4"><source>vier</source><target state="new"/>'
    "<alt-trans><target>quatre</target></alt-trans></trans-unit>"
)
SEGMENTS = (
    '<unit id="1"><notes><note>hier</note></notes><segment state="initial"><source>Das <pc id='
    '"1">rote</pc> Haus<ph id="2"/></source></segment></unit><unit id="2" translate="no"><segment>'
    '<source>Baum</source></segment></unit><group id="g"><unit id="3"><segment id="s"><source>'
    "Zwei. </source></segment><ignorable><source> </source></ignorable><segment>"
    "<source>Drei.</source>"
    "<target></target></segment></unit></group>"
)
OLD = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file original="a" '
    f'source-language="de" datatype="plaintext"><body>{UNITS}</body></file></xliff>'
)
NEW = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="{}" srcLang="de">'
    f'<file id="f">{SEGMENTS}</file></xliff>'
)


@pytest.mark.skipif(not SCHEMAS.exists(), reason="the schemas of XLIFF are not installed")
@pytest.mark.parametrize(
    ("source", "schema", "targets"),
    [
        (OLD, "xliff-core-1.2-strict.xsd", 4),
        (NEW.format("2.0"), "xliff-core-2.0.xsd", 3),
        (NEW.format("2.1"), "xliff-core-2.0.xsd", 3),
    ],
    ids=["1.2", "2.0", "2.1"],
)
def test_a_translated_file_of_xliff_is_valid(source: str, schema: str, targets: int) -> None:
    """The core of 2.1 has the schema of 2.0."""
    text = (SCHEMAS / schema).read_bytes()
    for address in (
        b"http://www.w3.org/2001/xml.xsd",
        b"informativeCopiesOf3rdPartySchemas/w3c/xml.xsd",
    ):
        text = text.replace(address, b"xml.xsd")
    rules = etree.XMLSchema(etree.fromstring(text, base_url=f"{SCHEMAS}/{schema}"))
    rules.assertValid(etree.fromstring(source))
    result = etree.fromstring(into(source.encode(), "a.xlf", "en"))
    rules.assertValid(result)
    assert sum(etree.QName(each).localname == "target" for each in result.iter()) == targets
