"""Placeholders around words are as tags; beside letters that are no word they are one word with
them."""

from __future__ import annotations

import re

import pytest

from serving.text.document import Format
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, backwards, read, same, translated

PAIRS = [
    ("%1$s", "%2$s"), ("%{a}", "%{b}"), ("{0}", "{1}"), ("{{x}}", "{{/x}}"), ("%s", "%s"),
    ("<%= a %>", "<%= b %>"), ("${a}", "${b}"), ("#{a}", "#{b}"), ("%1", "%2"), ("%@", "%@"),
    ("%(a)s", "%(b)s"), ("[[a]]", "[[/a]]"), ("{b}{i}", "{/i}{/b}"), ("%1$s%2$s", "%3$s%4$s"),
    ("[b]", "[/b]"), ("[url=https://x.org/a?b=c]", "[/url]"), ("[Color=red]", "[/Color]"),
    ("[b][i]", "[/i][/b]"), ("[quote]", "[/quote]"),
]  # fmt: skip
FORMATS: tuple[Format, ...] = ("text", "html", "markdown")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_words_between_two_placeholders_are_translated(
    opening: str, closing: str, format: Format
) -> None:
    if format == "html" and opening.startswith("<%"):
        return  # HTML reads it as a tag that is never closed
    for words in ("hier", "zu den Türen", "3 neue Türen"):
        if opening == "%1" and words[0] == "3":
            continue
        source = f"Klick {opening}{words}{closing}, bitte"
        assert read(source, format).sentences == [f"Klick {words}, bitte"]
        assert translated(source, format=format) == (
            f"KLICK {opening}{words.upper()}{closing}, BITTE"
        )
        turned = " ".join(reversed(words.upper().split()))
        assert translated(source, backwards, format) == (
            f"BITTE , {opening}{turned}{closing} KLICK"
        )
        assert translated(source, same, format) == source


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_both_come_out_once_and_in_order(
    opening: str, closing: str, translator: Translator
) -> None:
    source = f"Das ist {opening}ein Satz{closing} und {{name}} sieht es. {opening}Noch da{closing}"
    result = translated(source, translator)
    assert result.count(opening) == source.count(opening)
    assert result.count(closing) == source.count(closing)
    assert result.count("{name}") == 1
    assert result.index(opening) <= result.rindex(closing)


@pytest.mark.parametrize(
    "word",
    ["{n}px", "%dMB", "{count}x", "{h}h{m}min", "{a}x{b}", "{first}{last}", "{n}%",
     "Datei{s}", "{n}mal", "%d%s", "{a}-{b}", "x{0}hier{1}y", "%sx"],
)  # fmt: skip
def test_what_touches_a_single_placeholder_is_one_word_with_it(word: str) -> None:
    assert read(f"Nimm {word} davon").sentences == ["Nimm Tom davon"]
    assert translated(f"Nimm {word} davon", backwards) == f"DAVON {word} NIMM"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("opening", "closing"), [("%@", "%@"), ("%{a}", "%{b}"), ("[b]", "[/b]")])
def test_a_pair_begins_right_behind_a_variable(opening: str, closing: str, format: Format) -> None:
    source = f"Nun {{n}}{opening}hier{closing} ja"
    assert read(source, format).sentences == ["Nun Tom hier ja"]
    assert translated(source, backwards, format) == f"JA {opening}HIER{closing} {{n}} NUN"


def test_pairs_are_within_each_other_and_within_a_line() -> None:
    assert read("{0}Gut {name}, hier klicken!{1}").sentences == ["Gut Tom, hier klicken!"]
    assert translated("[b]Das {0}alte Haus{1}[/b] da", backwards) == (
        "DA [b]{0}HAUS ALTE{1} DAS[/b]"
    )
    assert read("{0}hier\nda{1}").sentences == []


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize(
    ("source", "format", "sentence"),
    [
        ("Klick {0}hier <b>jetzt</b>{1} an", "html", "Klick hier jetzt an"),
        ("Klick %1$s<b>hier</b>%2$s an", "html", "Klick hier an"),
        ("[b]Das <i>ist</i> gut[/b] hier", "xml", "Das ist gut hier"),
        ("Das {a}ist **sehr** gut{b} hier", "markdown", "Das ist sehr gut hier"),
        ("{0}Ein <b>Haus</b>{1} {2}da{3}", "text", "Ein Haus da"),
        ("{0}Ein <b>Haus {1}da{2}</b>{3} ja", "html", "Ein Haus da ja"),
    ],
)
def test_elements_may_stand_within_a_pair(
    source: str, format: Format, sentence: str, translator: Translator
) -> None:
    assert read(source, format).sentences == [sentence]
    assert translated(source, same, format) == source
    marks = re.findall(r"[{\[]/?\w[}\]]|</?\w>|%\d\$s", source)
    result = translated(source, translator, format)
    assert sorted(re.findall(r"[{\[]/?\w[}\]]|</?\w>|%\d\$s", result)) == sorted(marks)
    if translator is TRANSLATORS[0]:
        assert re.findall(r"[{\[]/?\w[}\]]|</?\w>|%\d\$s", result) == marks


def test_a_pair_across_an_element_is_no_pair() -> None:
    assert read("Klick {0}hier <b>jetzt{1}</b> an", "html").sentences == ["Klick Tom Boston an"]


def test_a_stretch_of_a_direction_and_a_pair_may_cross() -> None:
    for translator in TRANSLATORS:
        result = translated("Ja \u2068{0}hier\u2069 und da{1}", translator)
        assert [result.count(part) for part in ("{0}", "{1}")] == [1, 1]
        assert result.count("\u2068") == result.count("\u2069")


@pytest.mark.parametrize(
    ("source", "read_as"),
    [
        ("[list]\n[*]Eins\n[*]Zwei\n[/list]", ["Eins", "Zwei"]),
        ("Nimm [code]x = y[/code] da", ["Nimm Tom da"]),
        ("Nimm [img=3x4]https://x.org/a.png[/img] da", ["Nimm Tom da"]),
        ("Auf [url]https://x.org/a[/url] da", ["Auf Tom da"]),
        ("[b]offen da", ["offen da"]),
        ("zu[/quote] da", ["zu da"]),
        ("[siehe oben] und [Wort] da", ["[siehe oben] und [Wort] da"]),
        ("Note [1][2] da", ["Note da"]),
        ("Ein &lt;b&gt;Haus&lt;/b&gt; da", ["Ein Haus da"]),
        ('&lt;a href="/x"&gt;Da&lt;/a&gt;&lt;br/&gt;', ["Da"]),
        ("Das ist [b]gut[/b](siehe oben)", ["Das ist gut(siehe oben)"]),
    ],
)
def test_tags_of_bbcode_and_tags_that_are_escaped(source: str, read_as: list[str]) -> None:
    assert read(source).sentences == read_as
    assert translated(source, same) == source
