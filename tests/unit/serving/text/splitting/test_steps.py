"""Arrows and pictures that end a sentence."""

from __future__ import annotations

import pytest

from serving.text.document import Document
from tests.unit.serving.text.fakes import same


def sentences(text: str, language: str) -> list[str]:
    document = Document(text, "text")
    document.divide(language, lambda _: True)
    return document.sentences


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Open Settings > Privacy > Cookies.", ["Open Settings", "Privacy", "Cookies."]),
        ("View → Zoom → Reset", ["View", "Zoom", "Reset"]),
        ("Help -> About us", ["Help", "About us"]),
        ("Help => About us", ["Help", "About us"]),
        ('Click "File" > "Save As".', ['Click "File"', '"Save As".']),
        ("Go to File > Open. Then wait.", ["Go to File", "Open.", "Then wait."]),
        # The name of a step has few words, and a capital.
        ("In Account > Security you can change it.", ["In Account Security you can change it."]),
        ("Left > right", ["Left right"]),
        ("x > Zero", ["x Zero"]),
        ("if a > B then", ["if a B then"]),
        ("5 > 3", []),
    ],
)
def test_an_arrow_stands_between_the_steps_of_a_path(text: str, wanted: list[str]) -> None:
    assert sentences(text, "en") == wanted


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("en", "Thanks a lot 😊 You are great", ["Thanks a lot", "You are great"]),
        ("en", "See you 👋 Have a nice day", ["See you", "Have a nice day"]),
        ("es", "Buenos días ☀️ ¿Cómo estás?", ["Buenos días", "¿Cómo estás?"]),
        ("es", "Gracias 🙏🙏 Nos vemos", ["Gracias", "Nos vemos"]),
        ("de", "Es regnet ☔ Du brauchst Schuhe", ["Es regnet", "Du brauchst Schuhe"]),
        # A noun or a name may go on after it.
        ("de", "Ich 💙 Kaffee", ["Ich Kaffee"]),
        ("en", "I ❤️ Paris", ["I Paris"]),
        ("en", "I ❤️ it", ["I it"]),
        ("en", "😊 You are great", ["You are great"]),
    ],
)
def test_a_sentence_may_begin_after_a_picture(language: str, text: str, wanted: list[str]) -> None:
    assert sentences(text, language) == wanted


@pytest.mark.parametrize(
    "text", ["Edit > Find 🙏 You > Me -> Them", "Menü → Hilfe → Über ☀️ Ich da"]
)
def test_what_ends_a_sentence_stays_at_its_place(text: str) -> None:
    document = Document(text, "text")
    document.divide("de", lambda _: True)
    assert document.render([same(sentence) for sentence in document.sentences]).text == text
