"""Files whose translation runs the other way, and what files say of their language."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import openpyxl
import pptx
import pytest
from lxml import etree
from pptx.util import Inches

from serving.documents.recognition import recognised
from serving.documents.texts.direction import is_right_to_left, turn
from serving.documents.unit import ReadingWishes, Translated, Unit
from tests.unit.serving.documents.fakes import parts, rendered
from tests.unit.serving.documents.packages import WORD, docx, odt, zipped

HEBREW, NAMED = "בית", "הבית של IBM שם"
W = f"{{{WORD}}}"


def into(content: bytes, name: str, language: str, translate: Callable[[Unit], str] | str) -> bytes:
    """A file with every unit translated into a language."""
    format = recognised(content, name)
    file = format.read(content, ReadingWishes(target=language))
    words = (lambda _: translate) if isinstance(translate, str) else translate
    return file.write([Translated(words(unit)) for unit in file.units]).content


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        *(("ar", True), ("he-IL", True), ("fa_IR", True), ("uz-Arab", True)),
        *(("az-Latn", False), ("ar-Latn", False), ("de", False), ("", False)),
    ],
)
def test_languages_have_their_direction(language: str, expected: bool) -> None:
    assert is_right_to_left(language) is expected


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        *(("das Haus", "he", True), (NAMED, "he", None), (NAMED, "de", False)),
        *(("ein ב", "de", None), ("das Haus", "en", None), (NAMED, "", None)),
    ],
)
def test_a_text_is_turned_where_most_of_it_runs_the_other_way(
    text: str, target: str, expected: bool | None
) -> None:
    assert turn(text, target) is expected


def body(content: bytes) -> str:
    """What stands in the body of a file of Word."""
    root = etree.fromstring(parts(content)["word/document.xml"])
    etree.cleanup_namespaces(root)
    return "".join(etree.tostring(p).decode() for p in root.iter(f"{W}p")).replace(
        f' xmlns:w="{WORD}"', ""
    )


BOLD = (
    '<w:p><w:pPr><w:pStyle w:val="A"/><w:jc w:val="left"/></w:pPr><w:r><w:rPr><w:b/>'
    '<w:sz w:val="30"/><w:lang w:val="de"/></w:rPr><w:t>Das Haus</w:t></w:r></w:p>'
)


def test_words_from_the_left_in_a_paragraph_of_word_from_the_right_are_runs_of_their_own() -> None:
    result = etree.fromstring(parts(into(docx(BOLD), "a.docx", "he", NAMED))["word/document.xml"])
    (properties,) = result.iter(f"{W}pPr")
    assert [child.tag for child in properties] == [f"{W}pStyle", f"{W}bidi", f"{W}jc"]
    runs = {
        run.findtext(f"{W}t"): [etree.QName(p).localname for p in run.find(f"{W}rPr")]
        for run in result.iter(f"{W}r")
    }
    turned = ["b", "bCs", "sz", "szCs", "rtl"]
    assert runs == {"הבית של ": turned, "IBM": ["b", "sz"], " שם": turned}


def test_what_a_run_of_word_has_beside_its_words_stands_once_and_blanks_stay() -> None:
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>REF a</w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>Abbildung 3</w:t></w:r>'
        '<w:r><w:t>3. Mai</w:t><w:tab/></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    source = BOLD.replace("</w:p>", f"{field}</w:p>")
    result = etree.fromstring(parts(into(docx(source), "a.docx", "he", NAMED))["word/document.xml"])
    assert len(list(result.iter(f"{W}tab"))) == 1
    kept = "{http://www.w3.org/XML/1998/namespace}space"
    blanks = [t for t in result.iter(f"{W}t") if (t.text or "").strip() != t.text]
    assert blanks
    assert all(text.get(kept) == "preserve" for text in blanks)
    assert "Abbildung 3" in "".join(text.text or "" for text in result.iter(f"{W}t"))


def test_a_paragraph_of_word_from_the_right_comes_to_run_from_the_left() -> None:
    """Its style may say the other, so that it is said in words."""
    source = BOLD.replace("Das Haus", HEBREW).replace("<w:b/>", "<w:bCs/><w:rtl/>")
    result = body(into(docx(source), "a.docx", "en", "house"))
    assert '<w:bidi w:val="0"/><w:jc' in result
    assert '<w:b/><w:bCs/><w:sz w:val="30"/><w:rtl w:val="0"/></w:rPr>' in result


def test_what_runs_the_right_way_stays_as_it_is() -> None:
    source = docx(BOLD)
    result = into(source, "a.docx", "en", "house")
    assert b"bidi" not in parts(result)["word/document.xml"]
    page = odt("<text:p>Haus</text:p>", more={"styles.xml": STYLES})
    assert parts(into(page, "a.odt", "en", "house"))["styles.xml"].decode() == STYLES


def test_slides_run_from_the_right_and_stand_there() -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Titel der Folie"
    box = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(1), Inches(1)).text_frame
    box.text = "links"
    box.paragraphs[0].alignment = pptx.enum.text.PP_ALIGN.LEFT
    out = BytesIO()
    show.save(out)

    result = into(out.getvalue(), "a.pptx", "ar", "بيت")

    written = parts(result)
    assert written["ppt/slides/slide1.xml"].count(b'rtl="1"') == 2
    assert b'algn="r"' in written["ppt/slides/slide1.xml"]
    master = written["ppt/slideMasters/slideMaster1.xml"].decode()
    levels = master.partition("<p:bodyStyle>")[2].partition("</p:bodyStyle>")[0]
    assert (levels.count('algn="r"'), levels.count('algn="l"'), levels.count('rtl="1"')) == (
        9,
        0,
        9,
    )
    assert 'algn="ctr"' in master.partition("<p:titleStyle>")[2].partition("</p:titleStyle>")[0]
    assert pptx.Presentation(BytesIO(result)).slides[0].shapes.title.text == "بيت"
    back = parts(into(result, "a.pptx", "en", "house"))
    assert back["ppt/slides/slide1.xml"].count(b'rtl="0"') == 2
    assert b'algn="l"' in back["ppt/slides/slide1.xml"]


def test_the_first_column_of_a_sheet_is_at_the_right() -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "ein Haus"
    out = BytesIO()
    book.save(out)
    result = into(out.getvalue(), "a.xlsx", "he", HEBREW)
    assert openpyxl.load_workbook(BytesIO(result)).active.sheet_view.rightToLeft
    back = into(result, "a.xlsx", "de", "ein Haus")
    assert not openpyxl.load_workbook(BytesIO(back)).active.sheet_view.rightToLeft


STYLES = (
    '<office:document-styles xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"><office:styles>'
    '<style:default-style style:family="paragraph"><style:paragraph-properties/>'
    "</style:default-style></office:styles><office:automatic-styles><style:page-layout "
    'style:name="p"><style:page-layout-properties style:writing-mode="lr-tb"/>'
    "</style:page-layout></office:automatic-styles></office:document-styles>"
)


def test_pages_and_paragraphs_of_opendocument_are_turned() -> None:
    source = odt("<text:p>ein Haus</text:p>", more={"styles.xml": STYLES})
    result = into(source, "a.odt", "fa", "خانه")
    expected = STYLES.replace("lr-tb", "rl-tb").replace(
        "<style:paragraph-properties", '<style:paragraph-properties style:writing-mode="rl-tb"'
    )
    assert parts(result)["styles.xml"].decode() == expected
    back = parts(into(result, "a.odt", "de", "ein Haus"))["styles.xml"].decode()
    assert back == expected.replace("rl-tb", "lr-tb")


PAGE = '<!DOCTYPE html><html xml:lang="de" lang=de class="a"><body><p>Haus</p></body></html>'


@pytest.mark.parametrize(
    ("source", "language", "expected"),
    [
        (PAGE, "en", PAGE.replace('"de"', '"en"').replace("lang=de", 'lang="en"')),
        ('<html><p lang="de">Haus</p></html>', "en", '<html><p lang="de">Haus</p></html>'),
        ("<html><p>Haus</p></html>", "ar", '<html dir="rtl"><p>Haus</p></html>'),
        ("<html dir=rtl><p>Haus</p></html>", "de", '<html dir="ltr"><p>Haus</p></html>'),
        ("<p>Haus</p>", "ar", "<p>Haus</p>"),
    ],
)
def test_a_page_says_its_language_and_direction(source: str, language: str, expected: str) -> None:
    assert into(source.encode(), "a.html", language, lambda u: rendered(u, Translated).text) == (
        expected.encode()
    )


def test_a_book_says_its_language_title_and_direction() -> None:
    record = (
        '<package><metadata xmlns:dc="d"><dc:title id="t">Das Buch</dc:title>'
        "<dc:language>de-DE</dc:language></metadata><spine toc='n'><itemref idref='a'/></spine>"
        "</package>"
    )
    source = zipped({"mimetype": "application/epub+zip", "a.opf": record, "a.xhtml": PAGE})
    result = parts(into(source, "a.epub", "he", lambda u: u.text.replace("Das Buch", "ספר")))
    assert result["a.opf"].decode() == (
        record.replace("Das Buch", "ספר")
        .replace("de-DE", "he")
        .replace("toc='n'", "toc='n' page-progression-direction=\"rtl\"")
    )
    assert 'lang="he" class="a" dir="rtl"' in result["a.xhtml"].decode()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<file source-language="de" original="a">', ' target-language="en">'),
        ('<file source-language="de" target-language="fr">', ' target-language="fr">'),
    ],
)
def test_a_file_of_xliff_says_the_language_of_its_targets(head: str, expected: str) -> None:
    source = f"<xliff>{head}<trans-unit><source>Haus</source></trans-unit></file></xliff>"
    result = into(source.encode(), "a.xlf", "en", "house").decode()
    assert result == source.replace(
        head, head.partition(" target")[0].rstrip(">") + expected
    ).replace("</source>", "</source><target>house</target>")
