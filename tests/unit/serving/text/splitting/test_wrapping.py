"""Line breaks of texts that were wrapped at a width."""

from __future__ import annotations

import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.text.splitting.wrapping import soft_breaks
from tests.unit.serving.text.fakes import read

LONG = "vielen Dank für Ihre Bestellung vom dritten Mai, die wir heute gern"
GOES_ON = "bearbeitet haben."


def marked(text: str) -> str:
    """The text with `~` in place of its soft breaks, and `^` of those that are not read."""
    parts, done = list[str](), 0
    for each in soft_breaks(text):
        parts.append(text[done : each.begin] + ("~" if each.read else "^"))
        done = each.end
    return "".join([*parts, text[done:]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LONG}\n{GOES_ON}", f"{LONG}~{GOES_ON}"),
        (f"{LONG}\r\n{GOES_ON}\r\n", f"{LONG}~{GOES_ON}\r\n"),
        (f"{LONG} \n{GOES_ON}", f"{LONG}~{GOES_ON}"),
        (f"> {LONG}\n> {GOES_ON}", f"> {LONG}~{GOES_ON}"),
        (f"  {LONG}\n  {GOES_ON}", f"  {LONG}~{GOES_ON}"),
        (f"    {LONG}\n{GOES_ON}", f"    {LONG}~{GOES_ON}"),
        (f"- {LONG}\n  {GOES_ON}\n- Eins", f"- {LONG}~{GOES_ON}\n- Eins"),
        (f"Hallo Anna,\n{LONG}\n„{GOES_ON}“", f"Hallo Anna,\n{LONG}~„{GOES_ON}“"),
        # a paragraph behind another, with an indented first line
        (f"{LONG}\n{GOES_ON}\n  {LONG}\n{GOES_ON}", f"{LONG}~{GOES_ON}\n  {LONG}~{GOES_ON}"),
        # a noun, and a sentence that ends with a full line, among lines that go on
        (f"{LONG}\nKunden {GOES_ON}", f"{LONG}\nKunden {GOES_ON}"),
        (f"{LONG}\nKunden {LONG}\n{GOES_ON}", f"{LONG}~Kunden {LONG}~{GOES_ON}"),
        (f"{LONG}.\nWir {LONG}\n{GOES_ON}", f"{LONG}.~Wir {LONG}~{GOES_ON}"),
        # a paragraph as wide as another one
        (f"{LONG}\n{GOES_ON}\n\n{LONG}\nKunden", f"{LONG}~{GOES_ON}\n\n{LONG}~Kunden"),
        (f"{LONG}\n{GOES_ON}\n\n{LONG[:-9]}\nTee", f"{LONG}~{GOES_ON}\n\n{LONG[:-9]}\nTee"),
    ],
)
def test_a_paragraph_goes_on_behind_full_lines(text: str, expected: str) -> None:
    assert marked(text) == expected


@pytest.mark.parametrize(
    ("end", "begin", "expected"),
    [
        ("Bundes-", "regierung", "Bundes^regierung"),
        ("infor-", "mation", "infor^mation"),
        ("Ein-", "und Ausgabe", "Ein-~und Ausgabe"),
        ("well-", "known", "well-^known"),
        ("avez-", "vous", "avez-^vous"),
        ("E-", "Mail", "E-~Mail"),
        ("3-", "fach", "3-~fach"),
        ("mother-", "in-law", "mother-^in-law"),
        ("y a-", "t-il", "y a-^t-il"),
        ("e-", "mail", "e-^mail"),
        ("gut -", "aber", "gut -~aber"),
    ],
)
def test_a_divided_word_is_read_as_one(end: str, begin: str, expected: str) -> None:
    assert marked(f"{LONG}\n{LONG[:-8]} {end}\n{begin} ist") == f"{LONG}~{LONG[:-8]} {expected} ist"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Ein Satz.\nNoch ein Satz.",
        "Hallo Anna,\nwie geht es dir?",
        f"{LONG}\n\n{GOES_ON}",
        f"{LONG}:\n{GOES_ON}",
        f"{LONG}\n- {GOES_ON}",
        f"{LONG}\na) {GOES_ON}",
        f"{LONG}\n1. eins",
        f"{LONG}\n[x] {GOES_ON}",
        f"{LONG}\n> {GOES_ON}",
        f"> {LONG}\n>> {GOES_ON}",
        f"{LONG}\tx\n{GOES_ON}",
        f"{LONG} | x\n{GOES_ON}",
        f"name     {LONG}\nort      {GOES_ON}",
        f"{'-' * 60}\n{GOES_ON}",
        f"{LONG} 👍\n{GOES_ON}",
        f"{LONG} \\n\n{GOES_ON}",
        f"{LONG} &amp;\n{GOES_ON}",
        f"{LONG}\n👍 {GOES_ON}",
        f"Ein Wort und\nnoch eins.\n{LONG}.",
        f"{LONG} {LONG}\n{GOES_ON}",
        f"https://example.org/{'a' * 60}\nund noch ein Wort in einer Zeile, die so lang ist",
        "Peter Müller\nMusterstraße 12\n12345 Berlin",
        "Neue Funktionen für den Import von Dateien\nVerbesserte Anzeige der Ergebnisse",
        "我们今天没有时间但是明天可以来看你们大家" * 3 + "\n" + "我们今天没有时间",
    ],
)
def test_other_lines_end_what_they_say(text: str) -> None:
    assert soft_breaks(text) == []


SENTENCES = st.lists(
    st.lists(
        st.text("abcdefgäöüß", min_size=4, max_size=9), min_size=6, max_size=30
    ).map(lambda words: " ".join(words).capitalize() + "."),
    min_size=1,
    max_size=8,
)  # fmt: skip


@settings(deadline=None)
@given(SENTENCES, st.integers(60, 110))
def test_a_wrapped_text_is_read_as_it_was_before(sentences: list[str], width: int) -> None:
    paragraph = " ".join(sentences)
    wrapped = textwrap.fill(paragraph, width, break_on_hyphens=False)
    assert read(wrapped).sentences == read(paragraph).sentences
    quoted = textwrap.indent(wrapped, "> ")
    assert read(quoted).sentences == read(paragraph).sentences


@settings(deadline=None)
@given(st.text(), st.lists(st.sampled_from(["\n", "\r\n", "> ", " ", "a", "A", ".", "x " * 24])))
def test_breaks_are_in_order_and_hold_one_line_end_each(text: str, parts: list[str]) -> None:
    text += "".join(parts)
    done = 0
    for begin, end, _, written in soft_breaks(text):
        assert done < begin < end
        assert len(written.strip(" \t>").splitlines(keepends=True)) == 1
        assert written.strip(" \t>\r\n") == ""
        assert text[begin:end] in (written, f"-{written}")
        done = end


@pytest.mark.parametrize("word", ["a", "a-", "- ", ") ", "> ", ".", "a\n", "ä,\n"])
def test_long_lines_and_many_take_little_time(word: str) -> None:
    text = f"{LONG}\n{word * 100_000}\n{GOES_ON}\n{LONG}"
    begin = time.perf_counter()
    soft_breaks(text)
    assert time.perf_counter() - begin < 2
