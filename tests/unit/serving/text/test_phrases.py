"""Set phrases, and the sentences that count as them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import BundleError
from serving.text.phrases import Phrase, Phrases, read_phrases

PHRASES = Phrases(
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
        ("de", "Liebe {name},", "en", "Dear {name},"),
        ("de", "Liebe {name},", "es", "Querida {name}:"),
        ("de", "Liebe Eltern,", "en", "Dear parents,"),
        ("de", "Liebe {name} und {other},", "en", "Dear {name} and {other},"),
        ("de", "Sehr geehrte Frau {name},", "en", "Dear Ms {name},"),
        ("de", "Sehr geehrte Frau Dr. {name},", "en", "Dear Dr. {name},"),
        ("de", "Familie {name},", "en", "{name} family,"),
        ("de", "Ich heiße {name}.", "en", "My name is {name}."),
        ("en", "I'm called {name}!", "de", "Ich heiße {name}!"),
        ("es", "¡Hola, {name}!", "en", "Hello, {name}!"),
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
        ("en", "Mit freundlichen Grüßen,", "Kind regards,"),
        ("en", "mit freundlichen Grüßen ,", None),
        ("es", "guten Morgen,", "Buenos días,"),
        ("fr", "Guten Morgen,", "Bonjour,"),
        ("fr", "Wie heißt du,", None),
        ("en", "Ich heiße Anna,", None),
        ("es", "Sehr geehrte Damen und Herren!", "¡Estimados señores!"),
        ("es", "Sehr geehrte Damen und Herren", "Estimados señores"),
        # With names.
        ("en", "Liebe Anna,", "Dear Anna,"),
        ("en", "Liebe Anna Maria,", "Dear Anna Maria,"),
        ("en", "liebe Anna", "Dear Anna"),
        ("en", "Liebe Anna!", "Dear Anna!"),
        ("es", "Liebe Anna:", "Querida Anna:"),
        ("es", "Liebe Anna!", "¡Querida Anna!"),
        ("en", "Liebe Eltern,", "Dear parents,"),
        ("en", "Liebe Anna und Jürgen,", "Dear Anna and Jürgen,"),
        ("en", "Sehr geehrte Frau von der Leyen,", "Dear Ms von der Leyen,"),
        ("en", "Sehr geehrte Frau Müller-Lüdenscheidt,", "Dear Ms Müller-Lüdenscheidt,"),
        ("en", "Sehr geehrte Frau O\u2019Neill,", "Dear Ms O\u2019Neill,"),
        ("en", "SEHR GEEHRTE FRAU LANG,", "Dear Ms LANG,"),
        ("en", "Sehr geehrte Frau Dr. Lang,", "Dear Dr. Lang,"),
        ("en", "Familie Weiß,", "Weiß family,"),
        ("en", "Ich heiße Jürgen Wolff.", "My name is Jürgen Wolff."),
        # The same words without a name.
        ("en", "Liebe,", None),
        ("en", "Liebe macht blind.", None),
        ("en", "Liebe Anna und lieber Jürgen,", None),
        ("en", "Liebe Anna, komm bald,", None),
        ("en", "Liebe von,", None),
        ("en", "Liebe Ihr,", None),
        ("en", "Sehr geehrte Frau Ministerin,", None),
        ("en", "Sehr geehrte Frau Richter,", "Dear Ms Richter,"),
        ("en", "Liebe Karin,", "Dear Karin,"),
        ("en", "Liebe Anna?", None),
        ("en", "Ich heiße Sie willkommen.", None),
        ("en", "Ich heiße 123.", None),
        ("en", "Liebe " + "Anna " * 40 + "Maria,", None),
        ("en", "Liebe " + "A" * 500 + ",", None),
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
    assert PHRASES.translation(text, "de", target) == wanted


def test_marks_that_people_leave_out() -> None:
    for text in ("¡hola!", "hola!"):
        assert PHRASES.translation(text, "es", "fr") == "Salut !"
    for text in ("ça va ?", "ça va?"):
        assert PHRASES.translation(text, "fr", "es") == "¿Qué tal?"
    for text in ("¡Hola, Ana!", "Hola, Ana!", "Hola, Ana"):
        assert PHRASES.translation(text, "es", "en") == "Hello, Ana" + "!" * text.endswith("!")


def test_a_language_that_has_none() -> None:
    assert PHRASES.translation("Guten Morgen!", "nl", "en") is None
    assert PHRASES.translation("Liebe Anna,", "nl", "en") is None
    assert PHRASES.translation("it's fine", "en", "de") == "Es ist gut"
    assert PHRASES.translation("I\u2019m called Ana", "en", "de") == "Ich heiße Ana"


@pytest.mark.parametrize(
    ("text", "greeting"),
    [
        ("Liebe Anna, wie geht es dir?", "Liebe Anna,"),
        ("Sehr geehrte Damen und Herren, hiermit kündige ich.", ""),  # not in English
        ("Liebe Eltern, am Montag ist frei.", "Liebe Eltern,"),
        ("Liebe Anna und Jürgen, Ende gut, alles gut.", "Liebe Anna und Jürgen,"),
        ("Sehr geehrte Frau Dr. Lang, danke, es geht.", "Sehr geehrte Frau Dr. Lang,"),
        ("Liebe Anna,", ""),
        ("Liebe Anna,komm", ""),
        ("Liebe geht durch den Magen, heißt es.", ""),
        ("Guten Morgen, Anna!", ""),
        ("Ich heiße Anna, und du?", ""),
        ("Liebe Anna", ""),
        ("", ""),
    ],
)
def test_a_greeting_before_a_sentence(text: str, greeting: str) -> None:
    assert text[: PHRASES.greeting(text, "de", "en")] == greeting


def test_a_file_of_phrases(tmp_path: Path) -> None:
    file = tmp_path / "phrases.tsv"
    file.write_text("de\tDanke.\ten\tThanks.\n", encoding="utf-8")
    assert read_phrases(file).translation("danke", "de", "en") == "Thanks"
    for line in ("de\tDanke.\ten", "de\tDanke.\ten\t", "de\tDanke.\ten\tThanks.\tx"):
        file.write_text(line, encoding="utf-8")
        with pytest.raises(BundleError, match="line 1 must have a language, a phrase"):
            read_phrases(file)
    for line in (
        "de\tLiebe {name},\ten\tDear,",
        "de\tLiebe,\ten\tDear {name},",
        "de\tLiebe {name} und {name},\ten\tDear {name} and {name},",
    ):
        file.write_text(line, encoding="utf-8")
        with pytest.raises(BundleError, match=r"line 1: .* must have the same names, each once"):
            read_phrases(file)
    file.write_text("de\t{name}, hallo!\ten\tHello, {name}!", encoding="utf-8")
    with pytest.raises(BundleError, match="must begin with a word, not with a name"):
        read_phrases(file)
    file.write_bytes(b"\xff")
    with pytest.raises(BundleError, match="cannot be read"):
        read_phrases(file)
    with pytest.raises(BundleError, match="cannot be read"):
        read_phrases(tmp_path / "none")
