"""What a vocabulary does not spell is kept."""

from __future__ import annotations

import pytest

from serving.text.document import Document, Format
from serving.text.kept.spelling import unspelt
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, read

SPELT = frozenset("äöüßéèñœ–„“—«»’ÄÖÜ")


def spells(text: str) -> bool:
    return text == "Dvořák" or all(sign.isascii() or sign in SPELT for sign in text)


def divided(text: str, format: Format = "text") -> Document:
    document = Document(text, format)
    document.divide("de", lambda _: True, spells=spells)
    return document


@pytest.mark.parametrize("format", ["text", "html", "xml", "markdown"])
@pytest.mark.parametrize(
    ("text", "kept", "read_as"),
    [
        ("Ich bin Łukasz.", "Łukasz", "Ich bin Tom."),
        ("Łukasz ist da.", "Łukasz", "Tom ist da."),
        ("Das ist Łukasz's Haus.", "Łukasz", "Das ist Tom's Haus."),
        ("Er heißt Şükrü Şahin und ist da.", "Şükrü Şahin", "Er heißt Tom und ist da."),
        ("Wir waren in Łódź-Süd.", "Łódź", "Wir waren in Tom-Süd."),
        ("Wir fahren nach 東京 und zurück.", "東京", "Wir fahren nach Tom und zurück."),
        ("Das Wort Москва ist lang.", "Москва", "Das Wort Tom ist lang."),
        ("Das Wort नमस्ते ist kurz.", "नमस्ते", "Das Wort Tom ist kurz."),
        ("Ja ‹Ja› ja.", "‹", "Ja Ja ja."),  # noqa: RUF001
        ("Das ist ¿gut?", "¿", "Das ist gut?"),
    ],
)
def test_words_and_signs_that_are_not_spelt_are_kept(
    text: str, kept: str, read_as: str, format: Format
) -> None:
    document = divided(text, format)
    assert document.sentences == [read_as]
    for translator in TRANSLATORS:
        document = divided(text, format)
        result = document.render([translator(s) for s in document.sentences]).text
        assert result.count(kept) == 1


@pytest.mark.parametrize(
    "text",
    ["Größe und Äpfel", "Œuvre und œuvre", "ÉTÉ", "Dvořák ist da", "„Ja“ – «nein»", "plain text",
     "Cafe\u0301 da", "weiß\u00a0nicht"],
)  # fmt: skip
def test_what_is_spelt_in_either_case_is_read(text: str) -> None:
    assert unspelt(text, spells) == []


def test_of_a_text_in_other_letters_nothing_is_asked() -> None:
    document = divided("Привет, как дела? 東京、大阪。")
    assert document.sentences == []
    assert document.untranslated == "Привет, как дела? 東京、大阪。"


@pytest.mark.parametrize("translator", TRANSLATORS)
def test_it_stands_beside_other_things_that_are_kept(translator: Translator) -> None:
    text = "Hallo {name}, <b>Łukasz</b> zahlt 50 € an [b]Şahin[/b] 🙂"
    document = divided(text)
    result = document.render([translator(s) for s in document.sentences]).text
    for kept in ("{name}", "<b>", "Łukasz", "</b>", "50 €", "[b]", "Şahin", "[/b]", "🙂"):
        assert result.count(kept) == 1


def test_without_a_vocabulary_all_is_read() -> None:
    assert read("Ich bin Łukasz.").sentences == ["Ich bin Łukasz."]
