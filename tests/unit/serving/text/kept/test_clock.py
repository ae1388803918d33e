"""Times of day in words."""

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
    assert clock.in_figures(words, "de") == figures
    assert in_convention(words, "de", "en") == figures.removesuffix(" Uhr")
    assert in_convention(words, "de", "de") == words
    assert in_convention(words, "fr", "en") == words


@pytest.mark.parametrize(
    ("text", "words", "language", "target", "figures"),
    [
        ("We meet at half past seven.", "half past seven", "en", "de", "7:30 Uhr"),
        ("A quarter to nine", "A quarter to nine", "en", "es", "8:45"),
        ("quarter after twelve", "quarter after twelve", "en", "de", "12:15 Uhr"),
        ("a quarter till one", "a quarter till one", "en", "nl", "12:45"),
        ("It’s twenty-five past one.", "twenty-five past one", "en", "de", "1:25 Uhr"),
        ("at ten minutes to one", "ten minutes to one", "en", "de", "12:50 Uhr"),
        ("à sept heures et demie", "sept heures et demie", "fr", "en", "7:30"),
        ("Il est une heure moins le quart.", "une heure moins le quart", "fr", "de", "12:45 Uhr"),
        ("huit heures moins vingt-cinq", "huit heures moins vingt-cinq", "fr", "en", "7:35"),
        ("a las siete y media", "siete y media", "es", "en", "7:30"),
        ("Es la una y cuarto.", "una y cuarto", "es", "en", "1:15"),
        ("Son las nueve menos veinte.", "nueve menos veinte", "es", "de", "8:40 Uhr"),
    ],
)
def test_times_of_other_languages(
    text: str, words: str, language: str, target: str, figures: str
) -> None:
    assert times(text) == [words]
    assert in_convention(words, language, target) == figures
    assert in_convention(words, language, language) == words


@pytest.mark.parametrize("hour", HOURS)
def test_half_is_before_the_hour(hour: str) -> None:
    before = (HOURS.index(hour) or 12) if hour != "eins" else 12
    assert clock.in_figures(f"halb {hour}", "de") == f"{before}:30 Uhr"
    assert clock.in_figures(f"viertel nach {hour}", "de") == f"{HOURS.index(hour) + 1}:15 Uhr"


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
        "open from ten to four",
        "about ten to twelve people",
        "A quarter of a century",
        "She is half Spanish.",
        "Il a dormi sept heures et demie.",
        "une heure et quelques minutes",
        "compré tres y media docena",
        "ocho menos cinco son tres",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert times(text) == []


def test_every_time_has_the_hint() -> None:
    """Otherwise it would be passed over."""
    hint = re.compile(clock.HINT)
    for text in (
        *("half past six", "a quarter till six", "at ten before six", "à six heures et quart"),
        *("six heures moins dix", "las seis y cinco", "las seis menos veinticinco"),
    ):
        assert times(text)
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
        ("We'll meet on the 10th.", "We'll meet on the 7:30."),
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
