from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from serving.documents.raw import archive
from serving.documents.recognition import recognised
from serving.errors import DocumentError, TooLongError
from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import docx, odt, zipped

PARAGRAPH = "<w:p><w:r><w:t>Ein Haus</w:t></w:r></w:p>"


def refused(content: bytes, match: str, name: str = "a.docx") -> None:
    with pytest.raises(DocumentError, match=match):
        recognised(content, name).read(content)


def test_a_part_that_grows_too_much_is_refused() -> None:
    refused(docx(PARAGRAPH, {"bomb": b"0" * 10_000_000}), r"200 times, got 10000000 .*bomb")


def test_a_file_that_holds_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 500)
    refused(docx(PARAGRAPH), "must hold at most 500 bytes")
    monkeypatch.setattr(archive, "MAX_PART_BYTES", 100)
    refused(docx(PARAGRAPH), "must have at most 100 bytes")


def test_a_file_of_too_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_PARTS", 3)
    refused(docx(PARAGRAPH, {"more": b""}), "at most 3 parts, got 4")


def test_a_part_that_lies_about_its_size_is_refused() -> None:
    content = bytearray(docx(PARAGRAPH * 100))
    with zipfile.ZipFile(BytesIO(bytes(content))) as file:
        size = file.getinfo("word/document.xml").file_size
    lie = bytes(content).replace(struct.pack("<L", size), struct.pack("<L", 100))
    refused(lie, r"part word/document\.xml of the file is broken")


def test_zip_files_within_a_file_stay_closed() -> None:
    inner = zipped({"bomb": b"0" * 10_000_000})
    source = docx(PARAGRAPH, {"word/embeddings/inner.docx": inner})
    assert parts(translated(source, "a.docx"))["word/embeddings/inner.docx"] == inner


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "C:x"])
def test_names_that_lead_out_of_the_file_are_refused(name: str) -> None:
    refused(docx(PARAGRAPH, {name: b""}), "must stay within the file")


def test_two_parts_of_one_name_are_refused() -> None:
    out = BytesIO(docx(PARAGRAPH))
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(out, "a") as file,
    ):
        file.writestr("word/document.xml", b"<x/>")
    refused(out.getvalue(), "two parts with the same name")


ENTITIES = [
    '<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
    '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://example.org/">%a;]><x/>',
]


@pytest.mark.parametrize("xml", ENTITIES, ids=["bomb", "file", "address"])
def test_parts_that_declare_entities_are_refused(xml: str) -> None:
    content = parts(docx(PARAGRAPH)) | {"word/document.xml": xml.encode()}
    refused(zipped(content), "declares entities")


@pytest.mark.parametrize("name", ["a.docx", "a.PPTX", "a.xlsm", "a.odt", "a.epub", "a.pdf"])
def test_a_file_without_a_byte_is_said_to_be_empty(name: str) -> None:
    refused(b"", rf"^{name}: the file is empty \(0 bytes\)", name)


@pytest.mark.parametrize("cut", [30, 300, 600])
def test_a_zip_file_that_is_cut_off_is_refused(cut: int) -> None:
    refused(docx(PARAGRAPH)[:-cut], "broken zip file")


def test_a_part_that_is_no_xml_is_refused() -> None:
    content = parts(docx(PARAGRAPH)) | {"word/document.xml": b"<a>"}
    refused(zipped(content), r"word/document\.xml is not well-formed XML")


def test_namespaces_without_number_are_refused() -> None:
    declared = " ".join(f'xmlns:a{n}="b"' for n in range(20_000))
    refused(docx(f"<w:p {declared}><w:r><w:t>Ein Haus</w:t></w:r></w:p>"), "more than 500 namesp")


def test_elements_within_each_other_without_end_are_refused() -> None:
    refused(docx("<w:p>" * 3000 + "</w:p>" * 3000), "not well-formed XML")


def test_a_locked_file_of_office_is_named_as_such() -> None:
    compound = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)
    refused(
        compound + "EncryptedPackage".encode("utf-16-le"), r"a\.docx: .* locked with a password"
    )
    refused(compound, "before 2007 are not read")


def test_a_locked_file_of_opendocument_is_named_as_such() -> None:
    manifest = "<manifest:x xmlns:manifest='urn:m'><manifest:encryption-data/></manifest:x>"
    refused(odt("", more={"META-INF/manifest.xml": manifest}), "locked with a password", "a.odt")


def test_a_locked_zip_file_is_named_as_such() -> None:
    content = docx(PARAGRAPH)
    at = content.rindex(b"PK\x01\x02")
    locked = content[: at + 8] + b"\x01" + content[at + 9 :]
    refused(locked, "locked with a password")


def test_office_files_are_known_by_their_content() -> None:
    assert recognised(docx(PARAGRAPH), "a.txt").name == "docx"
    assert recognised(odt("", "spreadsheet"), "a.docx").name == "ods"
    refused(zipped({"a.txt": b"x"}), "must be a document", "a.docx")


def test_what_only_calls_itself_an_office_file_is_refused() -> None:
    refused(b"hallo", "broken zip file", "a.docx")


def test_a_document_without_paragraphs_stays_as_it_is() -> None:
    assert parts(translated(docx(""), "a.docx")) == parts(docx(""))


def test_a_paragraph_of_300_000_characters_is_refused_with_the_limit() -> None:
    source = docx(f"<w:p><w:r><w:t>{'ab ' * 100_000}</w:t></w:r></w:p>")
    with pytest.raises(TooLongError, match=r"a paragraph must have at most 250000 .*, got 299999"):
        recognised(source, "a.docx").read(source)


GROWTH = """
import sys
from pathlib import Path
from serving.documents.recognition import recognised
from serving.documents.unit import Translated

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])

content = Path(sys.argv[1]).read_bytes()
small = Path(sys.argv[2]).read_bytes()
recognised(small, sys.argv[2]).read(small)  # what is imported is no part of it
before = memory("VmRSS")
file = recognised(content, sys.argv[1]).read(content)
file.write([Translated(unit.text.replace("Satz", "Sentence")) for unit in file.units])
print(len(file.units), memory("VmHWM") - before)
"""


def styled(count: int) -> str:
    return "".join(
        '<w:p><w:pPr><w:jc w:val="both"/></w:pPr><w:r><w:t xml:space="preserve">Das ist der </w:t>'
        f"</w:r><w:r><w:rPr><w:b/></w:rPr><w:t>wichtige Satz {number}</w:t></w:r><w:r><w:t "
        'xml:space="preserve"> mit ein paar Worten.</w:t></w:r></w:p>'
        for number in range(count)
    )


def sheet(count: int) -> bytes:
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml."
    names = {"xl/workbook.xml": "sheet.main", "xl/sharedStrings.xml": "sharedStrings"}
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}{type}+xml"/>'
        for name, type in names.items()
    )
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    strings = "".join(
        f"<si><r><t>Das ist der </t></r><r><rPr><b/></rPr><t>wichtige Satz {number}</t></r></si>"
        for number in range(count)
    )
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{types}">{overrides}</Types>',
            "xl/workbook.xml": f'<workbook xmlns="{space}"/>',
            "xl/sharedStrings.xml": f'<sst xmlns="{space}">{strings}</sst>',
        }
    )


@pytest.mark.parametrize("suffix", ["docx", "xlsx"])
def test_ten_thousand_styled_segments_take_less_than_a_tenth_of_300_mb(
    tmp_path: Path, suffix: str
) -> None:
    large, small = tmp_path / f"large.{suffix}", tmp_path / f"small.{suffix}"
    large.write_bytes(docx(styled(10_000)) if suffix == "docx" else sheet(10_000))
    small.write_bytes(docx(styled(1)) if suffix == "docx" else sheet(1))
    words = [sys.executable, "-c", GROWTH, str(large), str(small)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    count, kilobytes = map(int, done.stdout.split())
    assert count == 10_000
    assert kilobytes < 30_000


def test_parts_in_other_encodings_are_read_and_become_utf_8() -> None:
    document = parts(docx("<w:p><w:r><w:t>Grüße</w:t></w:r></w:p>"))["word/document.xml"].decode()
    for encoding in ("utf-16", "iso-8859-1"):
        xml = f'<?xml version="1.0" encoding="{encoding}"?>{document}'.encode(encoding)
        source = zipped(parts(docx(PARAGRAPH)) | {"word/document.xml": xml})
        assert "GRÜSSE" in parts(translated(source, "a.docx"))["word/document.xml"].decode()


def test_what_surrounds_paragraphs_stays_to_the_byte() -> None:
    table = "<w:tbl ><w:tr w:a='1>2'/>%s<!-- <w:p> --></w:tbl ><w:p w:b='>'/><w:p></w:p>\n"
    source = docx(table % PARAGRAPH)
    found = parts(translated(source, "a.docx"))["word/document.xml"].decode()
    begin, end = table.split("%s")
    assert found.count(begin) == found.count(end) == 1
    assert found.count("EIN HAUS") == 1


def test_a_paragraph_of_200_000_characters_is_translated() -> None:
    words = "Der Hund lief weg. " * 10_500
    source = docx(f"<w:p><w:r><w:t>{words}</w:t><w:b/><w:t>Ende.</w:t></w:r></w:p>")
    result = parts(translated(source, "a.docx"))["word/document.xml"].decode()
    assert result.count("DER HUND LIEF WEG.") == 10_500
    assert "lief" not in result
