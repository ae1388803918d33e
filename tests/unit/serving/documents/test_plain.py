from __future__ import annotations

import pytest

from serving.documents.recognition import recognised
from serving.documents.unit import Translated, Unit
from serving.errors import DocumentError, TooLongError
from tests.unit.serving.documents.fakes import rendered, translated, written


def test_lines_are_translated_and_everything_between_them_stays() -> None:
    source = b"Guten Tag.\r\n\r\n  12 \r\nEin Haus\n\n"
    assert translated(source, "a.txt") == b"GUTEN TAG.\r\n\r\n  12 \r\nEIN HAUS\n\n"


WRAPPED = (
    "Hallo,\r\n\r\n"
    "ich wollte dir nur kurz schreiben, dass wir am Samstag doch nicht \r\n"
    "kommen können.\r\n"
    "- weil unser Auto in der Werkstatt steht und die Reparatur leider Mo-\r\n"
    "  nate dauert\r\n"
    "- Peter\r\n"
    "> Am Montag habe ich dir geschrieben, dass wir das alles verschieben\r\n"
    "> müssen.\r\n"
)


def test_wrapped_paragraphs_are_units_and_are_wrapped_anew() -> None:
    source = WRAPPED.encode()
    file = recognised(source, "a.txt").read(source)
    assert [unit.text for unit in file.units] == [
        "Hallo,",
        "ich wollte dir nur kurz schreiben, dass wir am Samstag doch nicht kommen können.",
        "- weil unser Auto in der Werkstatt steht und die Reparatur leider Monate dauert",
        "- Peter",
        "> Am Montag habe ich dir geschrieben, dass wir das alles verschieben müssen.",
    ]
    assert file.write([Translated(unit.text) for unit in file.units]).content == source
    texts = ["Hi,", "a " * 50 + "b", "- " + "c " * 50 + "d", "- Peter", "> " + "e " * 50 + "f"]
    written = file.write([Translated(text) for text in texts]).content.decode()
    assert max(map(len, written.splitlines())) <= 69
    assert [line[:3] for line in written.split("\r\n")] == [
        *("Hi,", "", "a a", "a a", "- c", "  c", "- P", "> e", "> e", ""),
    ]
    assert "\n" not in written.replace("\r\n", "")


def test_long_lines_of_blanks_and_very_long_wrapped_texts() -> None:
    source = b"a" + b" " * 200_000 + b"b"
    assert translated(source, "a.txt").split() == [b"A", b"B"]
    source = b"die Zeilen sind alle gleich lang und gehen weiter wie diese hier\r\n" * 6000
    file = recognised(source, "a.txt").read(source)
    assert 10 < len(file.units) < 30
    assert file.write([Translated(unit.text) for unit in file.units]).content == source


def test_the_line_ends_of_a_bilingual_text_are_those_of_the_text() -> None:
    source = f"{'ein Wort und noch ein Wort ' * 2}und\r\nnoch eins."
    result = written(source.encode(), "a.txt", bilingual=True)
    assert result.content.count(b"\n") == result.content.count(b"\r\n") == 3


def test_a_bilingual_text_has_each_wrapped_paragraph_before_its_translation() -> None:
    source = "Hallo,\n" + "ein Wort und noch ein Wort " * 2 + "und\nnoch eins.\n"
    result = written(source.encode(), "a.txt", bilingual=True)
    upper = source.upper().splitlines()
    expected = ["Hallo,", upper[0], *source.splitlines()[1:], *upper[1:], ""]
    assert result.content == "\n".join(expected).encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_found_and_kept(encoding: str) -> None:
    text = "Die Äpfel für Jürgen kosten viel Geld, sagte die Frau, die sie gepflückt hatte.\n"
    assert translated(text.encode(encoding), "a.txt") == text.upper().encode(encoding)


def test_what_an_encoding_lacks_makes_utf_8_of_the_file_and_is_said() -> None:
    source = "Die Äpfel für Jürgen kosten viel Geld, sagte die Frau, die sie gepflückt hatte.\n"
    file = recognised(source.encode("cp1252"), "a.txt").read(source.encode("cp1252"))
    result = file.write([Translated("日本")])
    assert result.content == "日本\n".encode()
    assert "UTF-8" in result.warnings[0]


def test_a_bilingual_text_has_each_line_before_its_translation() -> None:
    result = written(b"Ein Haus.\r\n\r\nZwei.", "a.txt", bilingual=True)
    assert result.content == b"Ein Haus.\r\nEIN HAUS.\r\n\r\nZwei.\r\nZWEI."


def test_markdown_keeps_its_marks() -> None:
    source = "# Titel\n\nEin *Wort*, `code` und [ein Link](x.md).\n\n```\nnicht\n```\n"
    expected = "# TITEL\n\nEIN *WORT*, `code` UND [EIN LINK](x.md).\n\n```\nnicht\n```\n"
    assert translated(source.encode(), "a.md") == expected.encode()


def test_html_keeps_its_tags_and_the_encoding_that_it_declares() -> None:
    source = '<meta charset="iso-8859-1"><p title="x">Schöne <b>Häuser</b></p>'.encode("latin-1")
    assert translated(source, "a.html") == (
        '<meta charset="iso-8859-1"><p title="X">SCHÖNE <b>HÄUSER</b></p>'.encode("latin-1")
    )


LONG = {
    "a.md": "# Titel\n\nEin [Wort][1] *und*\nzwei.\n\n- eins\n\n- zwei\n\n"
    "```\nnicht\n\ndas\n```\n\n!!! note\n\n    darin\n\n[1]: x.md\n\n",
    "a.html": "<div><h1>Titel</h1><p>Ein <b>Wort</b><br>und</p><ul><li>eins<li>zwei</ul></div>"
    "<script>'<p>nicht</p>'</script><pre>nicht\n<p>das</p></pre>Ende <!-- <p> --> hier",
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_page_is_translated_in_pieces_as_it_would_be_as_a_whole(name: str) -> None:
    file = recognised(b"", name).read((LONG[name] * 200).encode())
    assert 15 < len(file.units) < 200
    assert max(len(unit.text) for unit in file.units) < 1400
    result = file.write([rendered(unit) for unit in file.units]).content.decode()
    format = file.units[0].format
    assert result == rendered(Unit(LONG[name], format)).text * 200


def test_pictures_and_scripts_in_a_page_may_be_of_any_length() -> None:
    script = f"<script>{'x = 1;' * 30_000}</script>"
    source = f"<p>Haus</p>{script}<p><img src='data:{'A' * 200_000}'></p><p>Baum</p>"
    expected = source.replace("Haus", "HAUS").replace("Baum", "BAUM")
    assert translated(source.encode(), "a.html").decode() == expected


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.srt", "a.vtt", "a.ass", "a.sbv"])
def test_an_empty_file_stays_empty(name: str) -> None:
    assert translated(b"", name) == b""


def test_a_file_is_known_by_its_content_before_its_name() -> None:
    assert recognised(b"<!DOCTYPE html><p>x", "a.txt").name == "html"
    assert recognised(b"\xef\xbb\xbfWEBVTT\n\n", "a.txt").name == "vtt"
    assert recognised(b"1\r\n00:00:01,000 --> 00:00:02,000\r\nx\r\n", "a.md").name == "srt"
    assert recognised(b"hallo", "A.TXT").name == "txt"


def test_a_file_of_no_known_kind_is_refused_and_the_kinds_are_named() -> None:
    with pytest.raises(DocumentError, match=r"a\.xyz: .*\.txt.*, got the file extension \.xyz"):
        recognised(b"hallo", "a.xyz")


def test_a_whole_name_is_a_kind_and_its_end_is_none() -> None:
    late = b"<?xml version='1.0'?><!--" + b"x" * 5000 + b"--><resources/>"
    assert recognised(late, "values/Strings.xml").name == "android"
    with pytest.raises(DocumentError, match="the file must be of a known kind"):
        recognised(late, "docstrings.xml")


def test_comments_without_end_are_looked_through_at_once() -> None:
    assert recognised(b"<!---->" * 500 + b"x", "a.txt").name == "txt"


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(DocumentError, match="not text"):
        recognised(bytes(range(256)) * 20, "a.txt").read(bytes(range(256)) * 20)


def test_a_paragraph_of_300_000_characters_is_refused_with_the_limit() -> None:
    with pytest.raises(TooLongError, match=r"a paragraph must have at most 250000 .* got 300000"):
        recognised(b"", "a.txt").read(b"Kurz.\n" + b"lang " * 60_000)
