from __future__ import annotations

from io import BytesIO

import openpyxl
import pptx
import pytest
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.table import Table
from pptx.util import Inches

from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import odt, zipped
from tests.unit.serving.text.fakes import backwards, same


def saved(document: object) -> bytes:
    out = BytesIO()
    document.save(out)  # type: ignore[attr-defined]
    return out.getvalue()


# Excel


def workbook() -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Blatt"
    for row in (["Stadt", "Menge"], ["eine Stadt", 3], ["Zeile eins\nZeile zwei", 4]):
        sheet.append(row)
    sheet["C1"] = "=SUM(B2:B3)"
    sheet["C2"] = CellRichText("das ", TextBlock(InlineFont(b=True), "rote"), " Haus")
    sheet["C3"] = '=IF(B2>1,"ja","nein")'
    sheet["A2"].comment = Comment("Eine Anmerkung", "Anna")
    chart = BarChart()
    chart.title = "Titel des Bildes"
    chart.add_data(Reference(sheet, min_col=2, min_row=2, max_row=3))
    sheet.add_chart(chart, "E5")
    sheet.add_table(Table(displayName="Tabelle", ref="A1:B3"))
    return book


def test_cells_comments_and_titles_of_charts_are_translated_and_formulas_stay() -> None:
    source = saved(workbook())
    result = translated(source, "a.xlsx")
    sheet = openpyxl.load_workbook(BytesIO(result), rich_text=True).active
    assert sheet.title == "Blatt"
    assert sheet["A2"].value == "EINE STADT"
    assert sheet["A3"].value == "ZEILE EINS\nZEILE ZWEI"
    assert [sheet["B2"].value, sheet["C1"].value] == [3, "=SUM(B2:B3)"]
    assert sheet["C3"].value == '=IF(B2>1,"ja","nein")'
    assert str(sheet["C2"].value) == "DAS ROTE HAUS"
    assert [b.text for b in sheet["C2"].value if isinstance(b, TextBlock) and b.font.b] == ["ROTE"]
    assert sheet["A2"].comment.text == "EINE ANMERKUNG"
    assert b"TITEL DES BILDES" in parts(result)["xl/charts/chart1.xml"]


def test_headers_of_tables_stay_for_formulas_know_columns_by_them() -> None:
    sheet = openpyxl.load_workbook(BytesIO(translated(saved(workbook()), "a.xlsx"))).active
    assert [cell.value for cell in sheet[1]][:2] == ["Stadt", "Menge"]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        (b"Umsatz_x000a_der Stadt", b"Umsatz\nder Stadt"),
        (b"Umsatz_x000a_der Stadt", b"Umsatz_x000D_\nder Stadt"),
        (b"Umsatz_x000D__x000A_der Stadt", b"Umsatz\nder Stadt"),
        (b"der_x005F_x0041_ Wert", b"der_x005f_x0041_ Wert"),
    ],
)
def test_headers_of_tables_stay_whatever_lines_and_escapes_they_have(
    name: bytes, cell: bytes
) -> None:
    book = workbook()
    book.active["A1"] = "Umsatz\nder Stadt"
    source = parts(saved(book))
    sheet, table = "xl/worksheets/sheet1.xml", "xl/tables/table1.xml"
    assert b'"Umsatz_x000a_der Stadt"' in source[table]
    source[sheet] = source[sheet].replace(b"Umsatz\nder Stadt", cell)
    source[table] = source[table].replace(b"Umsatz_x000a_der Stadt", name)
    result = parts(translated(zipped(source), "a.xlsx"))[sheet]
    assert b">" + cell + b"<" in result
    assert b"EINE STADT" in result


# PowerPoint


def test_slides_notes_tables_and_links_are_translated() -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Titel der Folie"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    paragraph.add_run().text = "siehe "
    link = paragraph.add_run()
    link.text, link.hyperlink.address = "diese Seite", "https://example.org/"
    paragraph.add_run().text = " an"
    table = slide.shapes.add_table(1, 1, Inches(1), Inches(1), Inches(2), Inches(1)).table
    table.cell(0, 0).text = "eine Zelle"
    slide.notes_slide.notes_text_frame.text = "Eine Notiz"
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 100, 100).text_frame.text = "in der Gruppe"
    source = saved(show)

    result = translated(source, "a.pptx", backwards)
    found = pptx.Presentation(BytesIO(result)).slides[0]
    assert found.shapes.title.text == "FOLIE DER TITEL"
    runs = found.placeholders[1].text_frame.paragraphs[0].runs
    assert [run.text for run in runs] == ["AN ", "SEITE DIESE", " SIEHE"]
    assert [run.hyperlink.address for run in runs] == [None, "https://example.org/", None]
    assert found.notes_slide.notes_text_frame.text == "NOTIZ EINE"
    texts = [shape.text_frame.text for shape in found.shapes[-1].shapes]
    assert texts == ["GRUPPE DER IN"]
    (frame,) = [shape for shape in found.shapes if shape.has_table]
    assert frame.table.cell(0, 0).text == "ZELLE EINE"
    before, after = parts(source), parts(result)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml"}


# OpenDocument


def content(result: bytes) -> str:
    return parts(result)["content.xml"].decode()


def test_spans_links_and_notes_of_opendocument_stay_with_their_words() -> None:
    source = odt(
        '<text:h>Ein Titel</text:h><text:p text:style-name="P1">das '
        '<text:span text:style-name="T1">rote</text:span> Haus '
        '<text:a xlink:href="x">am See</text:a><text:note><text:note-citation>'
        "1</text:note-citation><text:note-body><text:p>Eine Note</text:p></text:note-body>"
        "</text:note> hier</text:p>"
    )
    result = content(translated(source, "a.odt"))
    assert "<text:h>EIN TITEL</text:h>" in result
    assert (
        '<text:p text:style-name="P1">DAS <text:span text:style-name="T1">ROTE</text:span> HAUS '
        '<text:a xlink:href="x">AM SEE</text:a><text:note><text:note-citation>1'
        "</text:note-citation><text:note-body><text:p>EINE NOTE</text:p></text:note-body>"
        "</text:note> HIER</text:p>"
    ) in result


def test_blanks_tabs_and_breaks_of_opendocument_stay() -> None:
    source = odt(
        '<text:p>ein<text:s text:c="2"/>Haus<text:tab/>am\n   See<text:line-break/>dort</text:p>'
    )
    result = content(translated(source, "a.odt"))
    assert "<text:tab/>AM SEE<text:line-break/>DORT</text:p>" in result
    assert "EIN" in result


def test_deleted_text_computed_cells_and_dates_of_opendocument_stay() -> None:
    kept = (
        "<text:tracked-changes><text:deletion><text:p>weg damit</text:p></text:deletion>"
        '</text:tracked-changes><table:table-cell office:value-type="date"><text:p>1. Mai</text:p>'
        '</table:table-cell><table:table-cell table:formula="of:=A1"><text:p>ja</text:p>'
        "</table:table-cell>"
    )
    source = odt(kept + "<table:table-cell><text:p>Haus</text:p></table:table-cell>", "spreadsheet")
    result = content(translated(source, "a.ods"))
    assert kept in result
    assert "<text:p>HAUS</text:p>" in result


@pytest.mark.parametrize(
    "cell",
    [
        'office:value-type="float" office:value="3"',
        'table:formula="of:=A1" office:value-type="string" office:string-value="drei Stück"',
    ],
)
def test_comments_and_frames_of_computed_cells_of_opendocument_are_translated(cell: str) -> None:
    body = (
        f"<table:table-cell {cell}><office:annotation><text:p>{{}}</text:p></office:annotation>"
        "<text:p>drei Stück<office:annotation><text:p>{}</text:p></office:annotation></text:p>"
        "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
        "</table:table-cell><table:table-cell><text:p>{}</text:p></table:table-cell>"
    )
    words = ["eine Anmerkung", "noch eine", "im Rahmen", "Haus"]
    result = content(translated(odt(body.format(*words), "spreadsheet"), "a.ods"))
    assert body.format(*map(str.upper, words)) in result


def test_a_translated_cell_of_opendocument_has_no_other_text_beside_its_paragraphs() -> None:
    cell = (
        '<table:table-cell office:value-type="string"{}><office:annotation><text:p>{}</text:p>'
        "</office:annotation><text:p>{}</text:p><text:p>{}</text:p></table:table-cell>"
    )
    value = ' office:string-value="das Haus&#10;am See"'
    source = odt(cell.format(value, "so", "das Haus", "am See"), "spreadsheet")
    result = content(translated(source, "a.ods"))
    assert cell.format("", "SO", "DAS HAUS", "AM SEE") in result
    assert translated(source, "a.ods", same) == source


def test_the_text_of_a_cell_of_opendocument_stays_if_only_its_comment_is_translated() -> None:
    cell = (
        '<table:table-cell office:string-value="12"><office:annotation><text:p>{}</text:p>'
        "</office:annotation><text:p>12</text:p></table:table-cell>"
    )
    result = content(translated(odt(cell.format("so"), "spreadsheet"), "a.ods"))
    assert cell.format("SO") in result


def test_a_presentation_of_opendocument_has_frames() -> None:
    box = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    source = odt(box.format("Eine Folie"), "presentation")
    assert box.format("EINE FOLIE") in content(translated(source, "a.odp"))


def test_other_parts_stay_and_in_their_order() -> None:
    source = odt("<text:p>Haus</text:p>", more={"Pictures/a.png": b"\x89PNG"})
    result = translated(source, "a.odt")
    assert list(parts(result)) == list(parts(source))
    assert parts(result)["Pictures/a.png"] == b"\x89PNG"


def test_titles_of_charts_in_a_sheet_of_opendocument_are_translated() -> None:
    chart = parts(odt("<text:p>Titel des Bildes</text:p>", "chart"))["content.xml"]
    source = odt("<text:p>Haus</text:p>", "spreadsheet", {"Object 1/content.xml": chart})
    result = parts(translated(source, "a.ods"))
    assert b"<text:p>TITEL DES BILDES</text:p>" in result["Object 1/content.xml"]


def test_words_with_a_guide_and_footers_of_slides_of_opendocument_are_translated() -> None:
    ruby = "<text:ruby><text:ruby-base>{}</text:ruby-base><text:ruby-text>k</text:ruby-text>"
    source = odt(f"<text:p>ein {ruby.format('wort')}</text:ruby> da</text:p>")
    assert "<text:p>EIN WORT DA</text:p>" in content(translated(source, "a.odt"))
    names = 'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"'
    footer = (
        f'<presentation:footer-decl {names} presentation:name="f">{{}}</presentation:footer-decl>'
    )
    result = content(translated(odt(footer.format("die Stadt"), "presentation"), "a.odp"))
    assert footer.format("DIE STADT") in result


def test_guides_to_the_old_words_of_a_cell_go_and_its_lines_stay() -> None:
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = (
        '<si><t>wort</t><rPh sb="0" eb="4"><t>k</t></rPh><phoneticPr/></si>'
        "<si><t>eins_x000D_\nzwei</t></si>"
    )
    source = {
        "[Content_Types].xml": "<Types>"
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/s.xml" ContentType="{kind}.sharedStrings+xml"/></Types>',
        "xl/s.xml": f'<sst xmlns="{space}">{cells}</sst>',
    }
    assert parts(translated(zipped(source), "a.xlsx"))["xl/s.xml"].decode() == (
        f'<sst xmlns="{space}"><si><t>WORT</t></si>'
        '<si><t xml:space="preserve">EINS\nZWEI</t></si></sst>'
    )
