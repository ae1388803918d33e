from __future__ import annotations

import re
from io import BytesIO

import docx as python_docx
import pytest
from docx.shared import RGBColor

from serving.documents.recognition import recognised
from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import docx, zipped
from tests.unit.serving.text.fakes import backwards


def body(content: bytes) -> str:
    """What is in the body of a file of Word, without the marks of preserved blanks."""
    text = parts(content)["word/document.xml"].decode()
    found = re.search("<w:body>(.*)</w:body>", text, re.DOTALL)
    assert found
    return found[1].replace(' xml:space="preserve"', "")


def run(text: str, properties: str = "") -> str:
    shown = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{shown}<w:t xml:space="preserve">{text}</w:t></w:r>'


def plain_run(text: str, properties: str = "") -> str:
    return run(text, properties).replace(' xml:space="preserve"', "")


def test_a_document_keeps_styles_tables_headers_and_what_has_no_text() -> None:
    document = python_docx.Document()
    document.add_heading("Erste Überschrift", 1)
    paragraph = document.add_paragraph("Das ist ", style="List Bullet")
    red = paragraph.add_run("rot und fett")
    red.bold, red.font.color.rgb = True, RGBColor(255, 0, 0)
    paragraph.add_run(" geschrieben.")
    table = document.add_table(2, 2)
    table.cell(0, 0).text = "Name der Stadt"
    table.cell(1, 1).text = "1.200"
    document.sections[0].header.paragraphs[0].text = "Kopfzeile"
    document.sections[0].footer.paragraphs[0].text = "Fußzeile"
    document.add_comment(paragraph.runs, "Eine Anmerkung", author="Anna")
    source = BytesIO()
    document.save(source)

    result = translated(source.getvalue(), "a.docx")
    found = python_docx.Document(BytesIO(result))
    assert [p.text for p in found.paragraphs] == [
        "ERSTE ÜBERSCHRIFT",
        "DAS IST ROT UND FETT GESCHRIEBEN.",
    ]
    assert found.paragraphs[0].style.name == "Heading 1"
    assert found.paragraphs[1].style.name == "List Bullet"
    runs = [run for run in found.paragraphs[1].runs if run.text]
    assert [run.text for run in runs] == ["DAS IST ", "ROT UND FETT", " GESCHRIEBEN."]
    assert [run.bold for run in runs] == [None, True, None]
    assert runs[1].font.color.rgb == RGBColor(255, 0, 0)
    assert found.tables[0].cell(0, 0).text == "NAME DER STADT"
    assert found.tables[0].cell(1, 1).text == "1.200"
    assert found.sections[0].header.paragraphs[0].text == "KOPFZEILE"
    assert found.sections[0].footer.paragraphs[0].text == "FUSSZEILE"
    assert [comment.text for comment in found.comments] == ["EINE ANMERKUNG"]
    before, after = parts(source.getvalue()), parts(result)
    assert list(before) == list(after)
    assert {name for name in before if before[name] != after[name]} == {
        "word/document.xml",
        "word/header1.xml",
        "word/footer1.xml",
        "word/comments.xml",
    }


def test_styles_go_with_their_words() -> None:
    source = docx(f"<w:p>{run('das ')}{run('rote', '<w:b/>')}{run(' Haus')}</w:p>")
    assert body(translated(source, "a.docx", backwards)) == (
        f"<w:p>{plain_run('HAUS ')}{plain_run('ROTE', '<w:b/>')}{plain_run(' DAS')}</w:p>"
    )


def test_runs_that_differ_in_language_and_revision_alone_are_one() -> None:
    source = docx(
        '<w:p w:rsidR="00A"><w:r w:rsidR="1"><w:rPr><w:lang w:val="de-DE"/></w:rPr><w:t>Wo</w:t>'
        '</w:r><w:proofErr w:type="spellStart"/><w:r w:rsidR="2"><w:t>chenende</w:t></w:r></w:p>'
    )
    assert body(translated(source, "a.docx")) == (
        f'<w:p w:rsidR="00A">{plain_run("WOCHENENDE")}</w:p>'
    )


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ('<w:hyperlink r:id="rId1">', "</w:hyperlink>"),
        ('<w:ins w:id="1" w:author="A">', "</w:ins>"),
        ('<w:sdt><w:sdtPr><w:id w:val="1"/></w:sdtPr><w:sdtContent>', "</w:sdtContent></w:sdt>"),
        (
            '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>HYPERLINK "x"'
            '</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r>',
            '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
        ),
    ],
    ids=["link", "insertion", "control", "field"],
)
def test_links_insertions_and_controls_stay_around_their_words(opening: str, closing: str) -> None:
    source = docx(f"<w:p>{run('siehe ')}{opening}{run('diese Seite')}{closing}{run(' an')}</w:p>")
    assert body(translated(source, "a.docx")) == (
        f"<w:p>{plain_run('SIEHE ')}{opening}{plain_run('DIESE SEITE')}{closing}"
        f"{plain_run(' AN')}</w:p>"
    )


@pytest.mark.parametrize(
    "thing",
    [
        '<w:r><w:footnoteReference w:id="2"/></w:r>',
        '<w:r><w:rPr><w:b/></w:rPr><w:drawing><a xmlns="urn:a"/></w:drawing></w:r>',
        '<w:del w:id="3"><w:r><w:delText>weg</w:delText></w:r></w:del>',
        '<w:bookmarkStart w:id="0" w:name="x"/>',
        "<m:oMath><m:r/></m:oMath>",
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> PAGE </w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>zwei</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
        '<w:fldSimple w:instr=" PAGE "><w:r><w:t>zwei</w:t></w:r></w:fldSimple>',
    ],
    ids=["note", "picture", "deletion", "bookmark", "formula", "field", "simple field"],
)
def test_what_is_no_text_stays_as_it_is_within_the_sentence(thing: str) -> None:
    source = docx(f"<w:p><w:pPr><w:jc/></w:pPr>{run('ein Haus')}{thing}{run(' am See')}</w:p>")
    result = body(translated(source, "a.docx"))
    assert (
        re.sub(r' xmlns:\w+="[^"]*"', "", result).count(re.sub(r' xmlns:\w+="[^"]*"', "", thing))
        == 1
    )
    assert result.startswith("<w:p><w:pPr><w:jc/></w:pPr><w:r>")
    assert "EIN HAUS" in result
    assert "AM SEE" in result


def test_tabs_and_breaks_divide_a_paragraph() -> None:
    source = docx("<w:p><w:r><w:t>ein Haus</w:t><w:tab/><w:t>am See</w:t><w:br/></w:r></w:p>")
    assert body(translated(source, "a.docx", backwards)) == (
        f"<w:p>{plain_run('HAUS EIN')}<w:r><w:tab/></w:r>{plain_run('SEE AM')}"
        "<w:r><w:br/></w:r></w:p>"
    )


def test_text_boxes_within_a_paragraph_are_paragraphs_of_their_own() -> None:
    inner = f"<w:txbxContent><w:p>{run('im Kasten')}</w:p></w:txbxContent>"
    box = f"<w:pict><wps:txbx>{inner}</wps:txbx></w:pict>"
    source = docx(f"<w:p>{run('davor ')}<w:r>{box}</w:r>{run(' danach')}</w:p>")
    result = body(translated(source, "a.docx"))
    assert result.count(plain_run("IM KASTEN")) == 1
    assert "DAVOR" in result
    assert "DANACH" in result


def test_blanks_that_word_does_not_show_are_no_text() -> None:
    source = docx("<w:p><w:r><w:t>  ein Haus </w:t></w:r></w:p>")
    assert body(translated(source, "a.docx")) == f"<w:p>{plain_run('EIN HAUS')}</w:p>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('Override PartName="/word/document.xml"', 'Default Extension="XML"'),
        ('PartName="/word/document.xml"', 'PartName="/Word/Document.XML"'),
    ],
    ids=["by its extension", "in capitals"],
)
def test_a_part_has_the_type_of_its_name_or_its_extension(old: str, new: str) -> None:
    source = parts(docx(f"<w:p>{run('Haus')}</w:p>"))
    types = source["[Content_Types].xml"].decode()
    types = types.replace('<Default Extension="xml" ContentType="application/xml"/>', "")
    source["[Content_Types].xml"] = types.replace(old, new).encode()
    result = translated(zipped(source), "a.docx")
    assert body(result) == f"<w:p>{plain_run('HAUS')}</w:p>"
    assert parts(result)["[Content_Types].xml"] == source["[Content_Types].xml"]


def test_macros_stay_and_are_named() -> None:
    source = docx(f"<w:p>{run('Haus')}</w:p>", {"word/vbaProject.bin": b"macro"})
    assert "macros" in recognised(source, "a.docm").read(source).warnings[0]
    assert parts(translated(source, "a.docm"))["word/vbaProject.bin"] == b"macro"


def test_a_signature_is_dropped_with_a_warning() -> None:
    source = docx(
        f"<w:p>{run('Haus')}</w:p>",
        {"_xmlsignatures/origin.sigs": b"", "_xmlsignatures/sig1.xml": "<a/>"},
        '<Override PartName="/_xmlsignatures/sig1.xml" ContentType="application/x"/>',
    )
    file = recognised(source, "a.docx").read(source)
    assert "signed" in file.warnings[0]
    result = parts(translated(source, "a.docx"))
    assert list(result) == ["[Content_Types].xml", "_rels/.rels", "word/document.xml"]
    assert b"_xmlsignatures" not in b"".join(result.values())


def test_nothing_changes_where_nothing_is_translated() -> None:
    source = docx(f"<w:p>{run('HAUS')}</w:p>")
    assert parts(translated(source, "a.docx")) == parts(source)


@pytest.mark.parametrize("name", ["utf8", "UTF-8"])
def test_either_name_of_the_encoding_is_read(name: str) -> None:
    document = parts(docx(f"<w:p>{run('Größe')}</w:p>"))["word/document.xml"]
    declared = f'<?xml version="1.0" encoding="{name}"?>'.encode() + document
    source = docx("", {"word/document.xml": declared})
    assert body(translated(source, "a.docx")) == f"<w:p>{plain_run('GRÖSSE')}</w:p>"


def field(code: str, shown: str) -> str:
    begin, separate, end = (
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    )
    return f"{begin}<w:r><w:instrText>{code}</w:instrText></w:r>{separate}{shown}{end}"


def test_links_that_are_fields_may_have_fields_in_them_or_be_simple() -> None:
    page = field("PAGEREF x", plain_run("3"))
    tab = "<w:r><w:tab/></w:r>"
    link = "<w:p>" + field('HYPERLINK "x"', plain_run("{}") + tab + page) + "</w:p>"
    simple = '<w:p><w:fldSimple w:instr=" HYPERLINK x ">{}</w:fldSimple></w:p>'
    source = docx(link.format("ein Kapitel") + simple.format(run("dieses")))
    assert body(translated(source, "a.docx")) == (
        link.format("EIN KAPITEL") + simple.format(plain_run("DIESES"))
    )


def test_blanks_between_bookmarks_keep_words_apart() -> None:
    mark = '<w:bookmarkStart w:id="{}"/>'
    source = docx(
        f"<w:p>{run('ein')}{mark.format(1)}{run(' ')}{mark.format(2)}{run('Haus da')}</w:p>"
    )
    assert body(translated(source, "a.docx")) == (
        f"<w:p>{plain_run('EIN')}{mark.format(1)}{plain_run(' ')}{mark.format(2)}"
        f"{plain_run('HAUS DA')}</w:p>"
    )


def test_words_with_a_guide_above_them_are_read() -> None:
    guide = f"<w:rt>{run('kan')}</w:rt><w:rubyBase>{run('wort')}</w:rubyBase>"
    source = docx(f"<w:p>{run('ein ')}<w:r><w:ruby>{guide}</w:ruby></w:r>{run(' da')}</w:p>")
    assert body(translated(source, "a.docx")) == f"<w:p>{plain_run('EIN WORT DA')}</w:p>"
