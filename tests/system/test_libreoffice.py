"""Translated documents, opened by LibreOffice, which had no part in translating them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from lxml import etree
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from pptx.util import Inches

from serving.server.work.documents.pictures import Pictures
from tests.integration.serving.document_readers import differences, small_words
from tests.integration.serving.real_documents import REAL
from tests.unit.serving.documents.fakes import parts, translated

OFFICE = shutil.which("soffice")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed"),
]
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'

BY = 'w:author="A" w:date="2026-01-01T00:00:00Z"'


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


def converted(
    contents: Sequence[bytes], ending: str, kind: str, folder: Path, profile: Path
) -> list[bytes]:
    """Documents as LibreOffice writes them in another kind, all of them after one start of it."""
    assert OFFICE
    sources = [folder / f"{number}.{ending}" for number in range(len(contents))]
    for source, content in zip(sources, contents, strict=True):
        source.write_bytes(content)
    out = folder / "out"
    subprocess.run(
        [
            OFFICE,
            f"-env:UserInstallation=file://{profile}",
            "--headless",
            "--convert-to",
            kind,
            "--outdir",
            str(out),
            *map(str, sources),
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )
    return [(out / source.name).with_suffix(f".{kind}").read_bytes() for source in sources]


def word() -> bytes:
    """A document with what python-docx makes, and much that it does not."""
    document = docx.Document()
    document.add_heading("Erste Überschrift", 1)
    paragraph = document.add_paragraph("Das ist ", style="List Number")
    paragraph.add_run("fett").bold = True
    paragraph.add_run(" geschrieben.")
    for inner in (
        f'<w:ins {W} w:id="7" {BY}><w:r><w:t xml:space="preserve"> neu dazu</w:t></w:r></w:ins>',
        f'<w:del {W} w:id="8" {BY}><w:r><w:delText>weg</w:delText></w:r></w:del>',
        f'<w:fldSimple {W} w:instr=" PAGE "><w:r><w:t>1</w:t></w:r></w:fldSimple>',
        f'<w:hyperlink {W} w:anchor="x"><w:r><w:t xml:space="preserve"> ein Verweis</w:t></w:r>'
        "</w:hyperlink>",
    ):
        paragraph._p.append(parse_xml(inner))
    outer = document.add_table(1, 2)
    outer.cell(0, 0).text = "Zelle außen"
    outer.cell(0, 1).add_table(1, 1).cell(0, 0).text = "Zelle innen"
    document.sections[0].header.paragraphs[0].text = "Kopfzeile"
    document.sections[0].footer.paragraphs[0].text = "Fußzeile"
    right = document.add_paragraph()
    right._p.append(parse_xml(f"<w:r {W}><w:rPr><w:rtl/></w:rPr><w:t>abc von rechts</w:t></w:r>"))
    document.add_paragraph("Zeile eins\nZeile zwei\tnach dem Tabulator")
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def sheets() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Das Blatt"
    sheet["A1"], sheet["A2"] = "eine Stadt", "zwei & drei"
    sheet["B1"], sheet["B2"] = 3, 4
    sheet["A3"] = CellRichText("das ", TextBlock(InlineFont(b=True), "rote"), " Haus")
    other = book.create_sheet("Anderes")
    other["A1"] = "='Das Blatt'!B1+'Das Blatt'!B2"
    chart = BarChart()
    chart.title = "Titel des Bildes"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=2))
    sheet.add_chart(chart, "E5")
    out = BytesIO()
    book.save(out)
    return out.getvalue()


def slides() -> bytes:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Titel der Folie"
    slide.placeholders[1].text_frame.text = "Erster Punkt\nZweiter Punkt"
    table = slide.shapes.add_table(1, 1, Inches(1), Inches(4), Inches(2), Inches(1)).table
    table.cell(0, 0).text = "eine Zelle"
    slide.notes_slide.notes_text_frame.text = "Eine Notiz"
    out = BytesIO()
    show.save(out)
    return out.getvalue()


MADE = {"docx": word, "xlsx": sheets, "pptx": slides}
FLAT = {"docx": "fodt", "xlsx": "fods", "pptx": "fodp"}
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
STYLE = f"{TEXT}style-name"
RUNS = frozenset((f"{TEXT}span", f"{TEXT}s", f"{TEXT}bookmark", f"{TEXT}bookmark-start"))
"""What stands as often as its writer likes."""
OF_OFFICE = frozenset(("<number>", "<date/time>", "<footer>", "<header>", "Column B"))
"""What LibreOffice itself shows."""
DELETED = f"{TEXT}tracked-changes"
PICTURE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}binary-data"


def bodies(
    contents: Sequence[bytes], ending: str, own: str, folder: Path, profile: Path
) -> list[etree._Element]:
    """What LibreOffice makes of documents: the bodies of flat files of OpenDocument."""
    parser = etree.XMLParser(huge_tree=True)
    found = []
    for flat in converted(contents, ending, FLAT[own], folder, profile):
        root = etree.fromstring(flat, parser)
        etree.strip_elements(root, PICTURE, with_tail=False)
        found.append(next(e for e in root if etree.QName(e).localname == "body"))
    return found


def paragraphs(body: etree._Element) -> list[str]:
    """The text of each paragraph, but for what is deleted."""
    return [
        "".join(p.itertext())
        for p in body.iter(f"{TEXT}p", f"{TEXT}h")
        if not any(above.tag == DELETED for above in p.iterancestors())
    ]


def structure(body: etree._Element) -> list[tuple[str, str | None]]:
    """Every element but those of runs, with its formula if it has one."""
    return [
        (etree.QName(e).localname, e.get(f"{TABLE}formula"))
        for e in body.iter(etree.Element)
        if e.tag not in RUNS
    ]


@pytest.mark.parametrize("kind", ["docx", "xlsx", "pptx", "odt", "ods", "odp", "pptx!"])
def test_each_word_is_translated_and_each_stays_in_its_place(
    kind: str, tmp_path: Path, profile: Path
) -> None:
    """`!`: as LibreOffice itself writes it."""
    own = {"odt": "docx", "ods": "xlsx", "odp": "pptx"}.get(kind, kind.rstrip("!"))
    source, ending = MADE[own](), kind.rstrip("!")
    if kind not in MADE:
        [source] = converted([source], own, ending, tmp_path, profile)
    files = [source, translated(source, f"a.{ending}")]
    before, after = bodies(files, ending, own, tmp_path, profile)
    # Deleted text stays as it was.
    assert structure(after) == structure(before)
    expected = [text if text in OF_OFFICE else text.upper() for text in paragraphs(before)]
    assert paragraphs(after) == [text.replace("WEG", "weg") for text in expected]


@pytest.mark.parametrize("kind", ["odt", "ods", "odp"])
def test_real_documents_keep_their_structure_and_all_their_words(
    kind: str, tmp_path: Path, profile: Path
) -> None:
    [package] = [each for each in REAL if each.ending == kind]
    sources = [content for _, content in package.documents()]
    if not sources:
        pytest.skip(f"{package.place} is not here")
    files = [*sources, *(translated(source, f"a.{kind}") for source in sources)]
    own = {"odt": "docx", "ods": "xlsx", "odp": "pptx"}[kind]
    seen = bodies(files, kind, own, tmp_path, profile)
    for before, after in zip(seen[: len(sources)], seen[len(sources) :], strict=True):
        assert structure(after) == structure(before)
        texts = paragraphs(before), paragraphs(after)
        assert [t.casefold() for t in texts[1]] == [t.casefold() for t in texts[0]]
        assert not [text for text in texts[1] if small_words(text) >= 3]


def test_a_book_of_libreoffice_keeps_its_structure_and_all_its_words(
    tmp_path: Path, profile: Path
) -> None:
    document = docx.Document()
    document.add_heading("Erstes Kapitel & mehr", 1)
    document.add_paragraph("Das ist ").add_run("fett").bold = True
    document.add_paragraph("ein Punkt", style="List Bullet")
    document.add_table(1, 1).cell(0, 0).text = "eine Zelle"
    document.add_heading("Zweites Kapitel", 1)
    out = BytesIO()
    document.save(out)
    [book] = converted([out.getvalue()], "docx", "epub", tmp_path, profile)
    before, after = parts(book), parts(translated(book, "a.epub"))
    chapters = [name for name in before if name.endswith(".xhtml")]
    assert list(after) == list(before)
    assert chapters
    for name in chapters:
        assert differences(before[name], after[name], "html") == [], name


def test_the_first_page_is_drawn_and_nothing_is_fetched_for_it(tmp_path: Path) -> None:
    asked: list[str] = []

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    document = docx.Document()
    document.add_paragraph("Eine Seite")
    address = f"http://127.0.0.1:{site.server_port}/a.png"
    shape = (
        f'<w:r {W} xmlns:v="urn:schemas-microsoft-com:vml" xmlns:r="http://schemas.openxmlformats'
        '.org/officeDocument/2006/relationships"><w:pict><v:shape style="width:9pt;height:9pt">'
        '<v:imagedata r:id="{}"/></v:shape></w:pict></w:r>'
    )
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
    linked = document.part.relate_to(address, kind, is_external=True)
    document.paragraphs[0]._p.append(parse_xml(shape.format(linked)))
    document.save(str(tmp_path / "a.docx"))
    picture = tmp_path / "before.png"
    assert asyncio.run(Pictures().draw(tmp_path / "a.docx", "docx", picture))
    site.shutdown()
    site.server_close()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not asked
