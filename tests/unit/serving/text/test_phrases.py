"""Set phrases, and the sentences that count as them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import BundleError
from serving.text.phrases import Phrase, known_phrases, read_phrases

PHRASES = known_phrases(
    Phrase(*row)
    for row in (
        ("de", "Guten Morgen!", "en", "Good morning!"),
        ("de", "Guten Morgen!", "en", "Morning!"),
        ("de", "Guten Morgen!", "es", "¡Buenos días!"),
        ("de", "Guten Morgen!", "fr", "Bonjour !"),
        ("de", "Hallo, wie geht's?", "es", "Hola, ¿qué tal?"),
        ("de", "Wie heißt du?", "fr", "Comment t'appelles-tu ?"),
        ("de", "Sehr geehrte Damen und Herren,", "es", "Estimados señores:"),
        ("de", "Mit freundlichen Grüßen", "en", "Kind regards"),
        ("de", "heute", "fr", "aujourd'hui"),
        ("de", "Montag", "fr", "lundi"),
        ("en", "It's fine.", "de", "Es ist gut."),
        ("es", "¡Hola!", "fr", "Salut !"),
        ("fr", "Ça va ?", "es", "¿Qué tal?"),
    )
)


@pytest.mark.parametrize(
    ("target", "text", "wanted"),
    [
        ("en", "Guten Morgen!", "Good morning!"),
        ("en", "Guten Morgen.", "Good morning."),
        ("en", "guten morgen", "Good morning"),
        ("en", "GUTEN MORGEN!", "Good morning!"),
        ("es", "Guten Morgen!", "¡Buenos días!"),
        ("es", "Guten Morgen.", "Buenos días."),
        ("fr", "Guten Morgen!", "Bonjour !"),
        ("fr", "Guten Morgen.", "Bonjour."),
        ("es", "Hallo, wie geht's?", "Hola, ¿qué tal?"),
        ("es", "Hallo, wie geht\u2019s?", "Hola, ¿qué tal?"),
        ("fr", "Wie heißt du?", "Comment t'appelles-tu ?"),
        ("es", "Sehr geehrte Damen und Herren,", "Estimados señores:"),
        ("en", "Mit freundlichen Grüßen", "Kind regards"),
        ("en", "Mit freundlichen Grüßen!", "Kind regards!"),
        ("fr", "heute", "aujourd'hui"),
        ("fr", "Heute", "Aujourd'hui"),
        ("fr", "Montag", "lundi"),
        # Another sentence, or another pair of languages.
        ("en", "Guten Morgen?", None),
        ("en", "Guten Morgen, Anna!", None),
        ("en", "Guten Morgen!!", None),
        ("fr", "Wie heißt du.", None),
        ("fr", "Mit freundlichen Grüßen", None),
        ("en", "", None),
        ("en", "!", None),
    ],
)
def test_what_counts_as_a_phrase(target: str, text: str, wanted: str | None) -> None:
    found = PHRASES.get(("de", target, text.replace("\u2019", "'").casefold()))
    assert (found and found[text[:1].isupper()]) == wanted


def test_marks_that_people_leave_out() -> None:
    for text in ("¡hola!", "hola!"):
        assert PHRASES["es", "fr", text] == ("Salut !", "Salut !")
    for text in ("ça va ?", "ça va?"):
        assert PHRASES["fr", "es", text] == ("¿Qué tal?", "¿Qué tal?")


def test_a_language_that_has_none() -> None:
    assert ("nl", "en", "guten morgen!") not in PHRASES
    assert PHRASES["en", "de", "it's fine"] == ("Es ist gut", "Es ist gut")


def test_a_file_of_phrases(tmp_path: Path) -> None:
    file = tmp_path / "phrases.tsv"
    file.write_text("de\tDanke.\ten\tThanks.\n", encoding="utf-8")
    assert read_phrases(file)["de", "en", "danke"] == ("Thanks", "Thanks")
    for line in ("de\tDanke.\ten", "de\tDanke.\ten\t", "de\tDanke.\ten\tThanks.\tx"):
        file.write_text(line, encoding="utf-8")
        with pytest.raises(BundleError, match="line 1 must have a language, a phrase"):
            read_phrases(file)
    file.write_bytes(b"\xff")
    with pytest.raises(BundleError, match="cannot be read"):
        read_phrases(file)
    with pytest.raises(BundleError, match="cannot be read"):
        read_phrases(tmp_path / "none")
