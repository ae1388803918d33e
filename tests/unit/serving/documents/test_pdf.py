from __future__ import annotations

from io import BytesIO
from pathlib import Path

import docx
import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from serving.documents.files import files_to_translate, translate_file
from serving.documents.pdf import paragraphs
from serving.documents.recognition import recognised
from serving.errors import DocumentError, InvalidOptionError
from tests.unit.serving.documents.fakes import rendered


def pdf(*pages: str, password: str = "") -> bytes:
    """A file of these pages, a line each for theirs."""
    writer = PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    for text in pages:
        page = writer.add_blank_page(600, 800)
        named = DictionaryObject({NameObject(k): NameObject(v) for k, v in font.items()})
        fonts = DictionaryObject({NameObject("/F1"): named})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        shown = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
        stream = StreamObject()
        stream.set_data(f"BT /F1 12 Tf 14 TL 50 700 Td {shown} ET".encode("latin-1"))
        page[NameObject("/Contents")] = stream
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


PAGES = ("Titel\nDas ist ein Satz, der auf einer Zeile be-\nginnt und hier endet.", "Seite zwei.")


def test_the_text_of_a_pdf_comes_out_as_word_or_text_with_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "a.pdf"
    source.write_bytes(pdf(*PAGES))
    expected = ["TITEL", "DAS IST EIN SATZ, DER AUF EINER ZEILE BEGINNT UND HIER ENDET."]
    for name in ("b.docx", "b.txt"):
        done = translate_file(
            source, tmp_path / name, lambda units: ([rendered(unit) for unit in units], [])
        )
        assert "Only the text" in done.warnings[0]
    found = docx.Document(str(tmp_path / "b.docx"))
    assert [p.text.strip() for p in found.paragraphs] == [*expected, "SEITE ZWEI."]
    text = (tmp_path / "b.txt").read_text()
    assert text == "\n\n".join(expected) + "\n\n\fSEITE ZWEI.\n"
    with pytest.raises(InvalidOptionError, match=r"must end with \.docx or \.txt, got .*c\.pdf"):
        translate_file(source, tmp_path / "c.pdf", lambda _: ([], []))
    assert files_to_translate(str(tmp_path), Path("/out"))[0][1] == Path("/out/a.pdf.docx")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"%PDF-1.7\nkaputt", "broken PDF"),
        (pdf(*PAGES)[:300], "broken PDF|no text"),
        (pdf(*PAGES, password="x"), "locked with a password"),
        (pdf(""), "no text, only pictures"),
    ],
    ids=["broken", "cut off", "locked", "without text"],
)
def test_a_pdf_that_cannot_be_read_is_refused(content: bytes, match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        recognised(content, "a.txt").read(content)


def test_lines_become_paragraphs() -> None:
    page = (
        "Der erste Absatz geht über eine Zeile und\nendet hier.\nDer zweite Absatz ist ähnlich "
        "lang wie er.\n\n• ein Punkt\n• noch einer"
    )
    assert list(paragraphs(page)) == [
        "Der erste Absatz geht über eine Zeile und endet hier.",
        "Der zweite Absatz ist ähnlich lang wie er.",
        "• ein Punkt",
        "• noch einer",
    ]
    assert PdfReader(BytesIO(pdf("x"))).pages[0].extract_text().strip() == "x"
