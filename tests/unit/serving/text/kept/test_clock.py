"""German times of day in words."""

from __future__ import annotations

import re

import pytest

from serving.text.document import Document
from serving.text.kept import clock
from serving.text.kept.figures import in_convention
from serving.text.kept.placeholders import is_plain, placeholders
from serving.text.placing.placement import Translated

HOURS = [
    *("eins", "zwei", "drei", "vier", "fünf", "sechs"),
    *("sieben", "acht", "neun", "zehn", "elf", "zwölf"),
]


def times(text: str) -> list[str]:
    return [text[slice(*found.span)] for found in placeholders(text) if found.kind == "figure"]


@pytest.mark.parametrize(
    ("text", "words", "figures"),
    [
        ("Wir treffen uns um halb acht.", "halb acht", "7:30 Uhr"),
        ("Halb eins ist spät.", "Halb eins", "12:30 Uhr"),
        ("um halb acht Uhr abends", "halb acht Uhr", "7:30 Uhr"),
        ("Es ist fünf vor halb drei.", "fünf vor halb drei", "2:25 Uhr"),
        ("zehn Minuten nach halb zwölf", "zehn Minuten nach halb zwölf", "11:40 Uhr"),
        ("Viertel nach drei", "Viertel nach drei", "3:15 Uhr"),
        ("um viertel vor eins", "viertel vor eins", "12:45 Uhr"),
        ("Es ist dreiviertel vier.", "dreiviertel vier", "3:45 Uhr"),
        ("Drei Viertel zwei", "Drei Viertel zwei", "1:45 Uhr"),
        ("Es ist zehn vor eins.", "zehn vor eins", "12:50 Uhr"),
        ("gegen zwanzig nach vier Uhr", "zwanzig nach vier Uhr", "4:20 Uhr"),
    ],
)
def test_a_time_is_kept_and_written_in_figures(text: str, words: str, figures: str) -> None:
    assert times(text) == [words]
    assert clock.in_figures(words) == figures
    assert in_convention(words, "de", "en") == figures.removesuffix(" Uhr")
    assert in_convention(words, "de", "de") == words
    assert in_convention(words, "fr", "en") == words


@pytest.mark.parametrize("hour", HOURS)
def test_half_is_before_the_hour(hour: str) -> None:
    before = (HOURS.index(hour) or 12) if hour != "eins" else 12
    assert clock.in_figures(f"halb {hour}") == f"{before}:30 Uhr"
    assert clock.in_figures(f"viertel nach {hour}") == f"{HOURS.index(hour) + 1}:15 Uhr"


@pytest.mark.parametrize(
    "text",
    [
        "Um zehn vor drei Zeugen zu reden, fiel ihm schwer.",
        "Vor zwei Jahren zog er um.",
        "Zehn vor drei ist kein Satz über die Zeit.",
        "Es ist viertel acht.",
        "Er war halb achtlos und halb neugierig.",
        "Sie kamen nach drei Stunden, halb erfroren.",
        "anderthalb acht",
        "Es ist acht Uhr.",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert times(text) == []


def test_every_time_has_the_hint() -> None:
    """Otherwise it would be passed over."""
    hint = re.compile(clock.HINT)
    for hour in HOURS:
        for words in ("halb", "fünf vor halb", "viertel vor", "Viertel nach", "dreiviertel"):
            assert hint.search(f"{words} {hour}")
            assert not is_plain(f"um {words} {hour}")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("We'll meet at 10.", "We'll meet at 7:30."),
        ("We'll meet at ten.", "We'll meet at 7:30."),
        ("We'll meet at 10:00.", "We'll meet at 7:30."),
        ("We'll meet at 10 o'clock.", "We'll meet at 7:30."),
        ("We'll meet at ten o'clock.", "We'll meet at 7:30."),
    ],
)
def test_whatever_a_model_makes_of_the_mask_becomes_the_time(output: str, expected: str) -> None:
    document = Document("Wir treffen uns um halb acht.", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.sentences == ["Wir treffen uns um 10."]
    assert document.render([Translated(output)]).text == expected


def test_a_word_is_no_mask_where_its_figures_are() -> None:
    document = Document("Zehn Leute kamen um halb acht.", "text")
    document.divide("de", lambda _: True, target="en")
    output = "Ten people came at 10."
    assert document.render([Translated(output)]).text == "Ten people came at 7:30."
