"""Quotation marks of programs, neighbours without a blank, and signs that only look like others."""

from __future__ import annotations

import pytest

from serving.text.document import Format
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import read, same, translated


@pytest.mark.parametrize("format", ["text", "html", "xml", "markdown"])
@pytest.mark.parametrize(
    ("source", "read_as", "wanted"),
    [
        ("I\\'m {name}", "I'm Tom", "I\\'M {name}"),
        ('Er sagte \\"Ja\\" und ging', 'Er sagte "Ja" und ging', 'ER SAGTE \\"JA\\" UND GING'),
        ("It''s {name} here", "It's Tom here", "IT''S {name} HERE"),
        ("It's here", "It's here", "IT'S HERE"),
        ("Das ist '' da", "Das ist '' da", "DAS IST '' DA"),
        ("Don’\ufe0ft go", "Don’t go", "DON’\ufe0fT GO"),
    ],
)
def test_quotation_marks_are_read_and_written_as_they_were(
    source: str, read_as: str, wanted: str, format: Format
) -> None:
    assert read(source, format).sentences == [read_as]
    assert translated(source, same, format) == source
    assert translated(source, format=format).replace("’\ufe0f", "’") == wanted.replace(
        "’\ufe0f", "’"
    )


def test_an_apostrophe_of_the_translation_is_written_like_those_of_the_text() -> None:
    for source, wanted in (
        ("Ich \\'mag\\' das", "I don\\'t"),
        ("Ich mag''s {name}, ja", "I don''t {name}"),
        ("Ich mag das", "I don't"),
    ):
        document = read(source)
        answer = "I don't Tom" if "{name}" in source else "I don't"
        assert document.render([Translated(answer)]).text == wanted


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("<a href='1'>Hund</a><a href='2'>Katze</a>", ["Hund", "Katze"]),
        ("<button>Ja</button><button>Nein</button>", ["Ja", "Nein"]),
        ("<label>Name</label><input/><label>Ort</label>", ["Name", "Ort"]),
        ("<span>Hund</span><span>Katze</span>", ["Hund Katze"]),
        ("Ein <a>Hund</a> <a>bellt</a> laut", ["Ein Hund bellt laut"]),
        ("Don<b>au</b><i>dampf</i>", ["Donaudampf"]),
        ("<a>Hund</a>, <a>Katze</a>", ["Hund, Katze"]),
    ],
)
def test_neighbours_without_a_blank_are_apart(source: str, sentences: list[str]) -> None:
    for format in ("html", "xml"):
        assert read(f"<p>{source}</p>", format).sentences == sentences
        text = translated(f"<p>{source}</p>", same, format)
        assert text == f"<p>{source}</p>"


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("Hallo\\nDu bist da", ["Hallo Du bist da"]),
        ("Gr\\u00fc\\u00dfe von dort", ["Tom von dort"]),
    ],
)
def test_escapes_in_xml(source: str, sentences: list[str]) -> None:
    assert read(f"<s>{source}</s>", "xml").sentences == sentences
    assert translated(f"<s>{source}</s>", same, "xml") == f"<s>{source}</s>"


@pytest.mark.parametrize(
    ("source", "read_as"),
    [
        ("Schüler:innen sind da", "Schüler:innen sind da"),
        ("Er sagte: ja", "Er sagte: ja"),
        ("Hier :-) ist es", "Hier ist es"),
        ("Das und/oder das", "Das und/oder das"),
        ("Ja && nein", "Ja nein"),
        ("Entweder/oder", "Entweder/oder"),
    ],
)
def test_colons_and_strokes_of_sentences_are_read(source: str, read_as: str) -> None:
    assert read(source).sentences == [read_as]


@pytest.mark.parametrize(
    ("source", "sentences", "result"),
    [
        ("Kapitel<img> <img>eins", ["Kapitel eins"], "KAPITEL<img> <img>EINS"),
        ("Kapitel<img> <img><b>eins</b>", ["Kapitel eins"], "KAPITEL<img> <img><b>EINS</b>"),
        ("Eins.<img>\n<img>Zwei", ["Eins.", "Zwei"], "EINS.<img>\n<img>ZWEI"),
        ("Wort<img> <img>, da", ["Wort, da"], "WORT<img> <img>, DA"),
        ("<b>Wort<img> <img></b> da", ["Wort da"], "<b>WORT<img> <img></b> DA"),
    ],
)
def test_blanks_between_things_keep_words_apart(
    source: str, sentences: list[str], result: str
) -> None:
    assert read(source, "html").sentences == sentences
    assert translated(source, format="html") == result
    assert translated(source, same, "html") == source


@pytest.mark.parametrize(
    ("source", "sentences", "result"),
    [
        ("<ruby>漢<rt>kan</rt>字<rt>ji</rt></ruby> da", ["漢字 da"],
         "<ruby>漢字<rt>kan</rt><rt>ji</rt></ruby> DA"),
        ("<ruby>字<rp>(</rp><rt>ji</rt><rp>)</rp></ruby>!", ["字!"], None),
        ("Ein <em>Satz</em><a href='#n'>1</a> da.", ["Ein Satz da."],
         "EIN <em>SATZ</em><a href='#n'>1</a> DA."),
        ("Ein Satz.<a>[12]</a> Noch<a>*</a> einer", ["Ein Satz.", "Noch einer"],
         "EIN SATZ.<a>[12]</a> NOCH<a>*</a> EINER"),
        ("Kapitel <a>drei</a> da", ["Kapitel drei da"], "KAPITEL <a>DREI</a> DA"),
    ],
)  # fmt: skip
def test_what_is_no_part_of_the_sentence_stays_beside_its_word(
    source: str, sentences: list[str], result: str | None
) -> None:
    assert read(source, "html").sentences == sentences
    assert translated(source, format="html") == (result or source)
    assert translated(source, same, "html") == source
