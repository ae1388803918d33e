"""Files of Word in which each paragraph is followed by its translation."""

from __future__ import annotations

import re
from io import BytesIO

import docx as python_docx
import pytest

from serving.documents.recognition import recognised
from tests.unit.serving.documents.fakes import parts, written
from tests.unit.serving.documents.packages import docx, odt, zipped


def body(content: str) -> str:
    """What becomes of the body of a file."""
    result = written(docx(content), "a.docx", bilingual=True).content
    found = re.search("<w:body>(.*)</w:body>", parts(result)["word/document.xml"].decode(), re.S)
    assert found
    return found[1]


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_headings_lists_cells_and_headers_are_there_twice_and_counted_once() -> None:
    document = python_docx.Document()
    document.add_heading("Überschrift", 1)
    for text in ("eins", "zwei"):
        document.add_paragraph(text, style="List Number").add_run(" fett").bold = True
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "Stadt"
    table.cell(0, 1).text = "1.200"
    document.sections[0].header.paragraphs[0].text = "Kopfzeile"
    source = BytesIO()
    document.save(source)
    result = written(source.getvalue(), "a.docx", bilingual=True)
    found = python_docx.Document(BytesIO(result.content))
    assert [p.text for p in found.paragraphs] == [
        *("Überschrift", "ÜBERSCHRIFT", "eins fett", "EINS FETT", "zwei fett", "ZWEI FETT"),
    ]
    assert [p.text for p in found.tables[0].cell(0, 0).paragraphs] == ["Stadt", "STADT"]
    assert [p.text for p in found.tables[0].cell(0, 1).paragraphs] == ["1.200"]
    assert [p.text for p in found.sections[0].header.paragraphs] == ["Kopfzeile", "KOPFZEILE"]
    first, second = found.paragraphs[2:4]
    assert first.style.name == second.style.name == "List Number"
    assert [r.text for r in second.runs if r.bold] == [" FETT"]
    numbers = [p._p.pPr.numPr for p in (first, second)]
    assert numbers[0] is None  # that of the style
    assert numbers[1].numId.val == 0  # none


ONCE = (
    "<w:bookmarkStart/><w:bookmarkEnd/>",
    "<w:commentRangeStart/><w:commentRangeEnd/>",
    "<w:r><w:footnoteReference/></w:r>",
    "<w:r><w:drawing/></w:r>",
    "<w:del><w:r><w:delText>x</w:delText></w:r></w:del>",
)


@pytest.mark.parametrize("once", ONCE)
def test_what_may_be_there_once_stays_with_the_source(once: str) -> None:
    source = f"<w:p>{run('ein')}{once}{run(' Haus')}</w:p>"
    result = body(source)
    assert result.startswith(source)
    tag = re.match(r"(?:<w:r>)?<(w:\w+)", once)
    assert tag
    assert result.count(f"<{tag[1]}") == source.count(f"<{tag[1]}")
    assert re.sub("<[^>]*>", "", result).endswith("EIN HAUS")


def test_a_page_begins_once() -> None:
    page = '<w:r><w:br w:type="page"/></w:r>'
    result = body(f"<w:p>{page}{run('eins')}{page}{run('zwei')}</w:p>")
    assert result.startswith(f"<w:p>{page}{run('eins')}{page}{run('zwei')}</w:p><w:p>")
    second = result.split("</w:p>")[1]
    assert re.sub(r"<w:br\b[^>]*>", "|", second).count("|") == 1
    assert re.sub("<[^>]*>", "", second.replace("<w:br/>", "|")) == "EINS|ZWEI"


def test_fields_are_in_both() -> None:
    field = '<w:fldSimple w:instr="PAGE"><w:r><w:t>3</w:t></w:r></w:fldSimple>'
    result = body(f"<w:p>{run('Seite ')}{field}{run(' oben')}</w:p>")
    assert result.count(field) == 2
    assert re.sub("<[^>]*>", "", result) == "Seite 3 obenSEITE 3 OBEN"


def test_a_field_over_several_paragraphs_begins_and_ends_once() -> None:
    mark = '<w:r><w:fldChar w:fldCharType="%s"/></w:r>'
    code = "<w:r><w:instrText>TOC</w:instrText></w:r>"
    begin = mark % "begin" + code + mark % "separate"
    result = body(f"<w:p>{begin}{run('eins')}</w:p><w:p>{run('zwei')}{mark % 'end'}</w:p>")
    for part in (mark % "begin", code, mark % "separate", mark % "end"):
        assert result.count(part) == 1
    assert re.sub("<[^>]*>", "", result) == "TOCeinsEINSzweiZWEI"


def test_a_section_ends_behind_both_and_a_page_begins_before_both() -> None:
    properties = "<w:pPr><w:pageBreakBefore/>%s<w:sectPr/></w:pPr>"
    result = body(f'<w:p w:x="1">{properties % ""}{run("Haus")}</w:p>')
    assert result == (
        f'<w:p w:x="1"><w:pPr><w:pageBreakBefore/></w:pPr>{run("Haus")}</w:p>'
        f'<w:p w:x="1"><w:pPr><w:sectPr/></w:pPr>{run("HAUS")}</w:p>'
    )


def test_a_list_does_not_count_translations() -> None:
    number = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="7"/></w:numPr>'
    given = '<w:pStyle w:val="L"/><w:keepNext/>%s<w:jc w:val="both"/>'
    result = body(f"<w:p><w:pPr>{given % number}</w:pPr>{run('Haus')}</w:p>")
    none = '<w:numPr><w:numId w:val="0"/></w:numPr>'
    for shown, text in ((number, "Haus"), (none, "HAUS")):
        assert f"<w:pPr>{given % shown}</w:pPr>{run(text)}" in result


def test_text_boxes_are_there_once_with_both_in_them() -> None:
    box = f"<w:pict><w:txbxContent><w:p>{run('innen')}</w:p></w:txbxContent></w:pict>"
    result = body(f"<w:p>{run('außen')}<w:r>{box}</w:r></w:p>")
    assert re.findall(r">(\w+)</w:t>", result) == ["außen", "innen", "INNEN", "AUSSEN"]
    assert result.count("<w:pict>") == 1


def test_links_are_in_both() -> None:
    link = '<w:hyperlink w:anchor="a">%s</w:hyperlink>'
    result = body(f"<w:p>{run('ein ')}{link % run('Haus')}</w:p>")
    assert result.count(link % run("Haus")) == result.count(link % run("HAUS")) == 1


def test_the_id_of_a_paragraph_is_that_of_the_last() -> None:
    space = 'xmlns:v="http://schemas.microsoft.com/office/word/2010/wordml"'
    result = body(f'<w:p {space} v:paraId="1">{run("Haus")}</w:p>')
    first, second = result.split("</w:p>")[:2]
    assert "paraId" not in first
    assert 'v:paraId="1"' in second


def test_what_is_the_same_in_both_languages_is_there_once() -> None:
    assert body(f"<w:p>{run('HAUS')}</w:p>") == f"<w:p>{run('HAUS')}</w:p>"


def test_other_files_of_office_have_no_room_for_both() -> None:
    source = odt("<text:p>Haus</text:p>")
    assert recognised(source, "a.odt").read(source).write_bilingual is None


def test_slides_with_a_file_of_word_in_them_have_no_room_for_both() -> None:
    kind = "application/vnd.openxmlformats-officedocument"
    types = (
        f'<Types><Default Extension="docx" ContentType="{kind}.wordprocessingml.document"/>'
        f'<Default Extension="xml" ContentType="{kind}.presentationml.slide+xml"/><Override '
        f'PartName="/p.xml" ContentType="{kind}.presentationml.presentation.main+xml"/></Types>'
    )
    source = zipped({"[Content_Types].xml": types, "p.xml": "<p/>", "a.docx": docx("")})
    assert recognised(source, "a.pptx").read(source).write_bilingual is None
