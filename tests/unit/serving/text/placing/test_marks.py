"""Marks that a translation has unlike its source."""

from __future__ import annotations

import pytest

from serving.text.document import Document
from serving.text.edits import edited
from serving.text.placing.marks import mark_edits
from serving.text.placing.placement import Translated


@pytest.mark.parametrize(
    ("source", "output", "target", "expected"),
    [
        ("Nein!!!", "No!!", "en", "No!!!"),
        ("Ja!!!!!", "Yeah!!!.!", "en", "Yeah!!!!!"),
        ("Was machst du da?!", "What are you doing there?", "en", "What are you doing there?!"),
        ("Wir gehen!!", "We're going.", "en", "We're going!!"),
        ('Er rief: "Nein!!!"', 'He shouted: "No!"', "en", 'He shouted: "No!!!"'),
        ("Guten Morgen Tom,", "Good morning, Tom", "en", "Good morning, Tom,"),
        ("See you soon,", "Bis bald.", "de", "Bis bald,"),
        ("Ich dachte, du…", "I thought you were..", "en", "I thought you were…"),
        ("Er kam ... und ging …", "He came.. and left....", "en", "He came... and left…"),
        ("That is all.", "C'est tout..", "fr", "C'est tout."),
        ("No!!!", "Non ! !", "fr", "Non !!!"),
        ("No!!!", "Non.", "fr", "Non\u00a0!!!"),
        ("Non !!!", "No!", "en", "No!!!"),
        ("No!!!", "¡No!", "es", "¡No!!!"),
        ("one problem—money", "un problème - argent", "fr", "un problème — argent"),
        ("It -- the dog -- ran", "Es – der Hund -- lief", "de", "Es – der Hund – lief"),
        ("Der Hund – er", "The dog - he", "en", "The dog – he"),
        ("Kaffee, Tee usw.?!", "Coffee, tea, etc.?", "en", "Coffee, tea, etc.?!"),
    ],
)
def test_runs_and_lost_marks_are_written_as_in_the_source(
    source: str, output: str, target: str, expected: str
) -> None:
    assert edited(output, mark_edits(source, output, target)) == expected


@pytest.mark.parametrize(
    ("source", "output", "target"),
    [
        ("Pass auf dich auf!", "Be careful.", "en"),
        ("Please wait…", "Bitte warten...", "de"),
        ("Come here!!!", "Ven aquí.", "es"),
        ("Dear Anna,", "Estimada Anna:", "es"),
        ("Kaffee, Tee usw.,", "Coffee, tea etc.,", "en"),
        ("Er rief: „Nein!!!“", "He shouted no!", "en"),
        ("Ein Wort", "A word.", "en"),
        ("A - b—c", "A - b - c", "de"),
        ("Ein Wort – zwei", "One word, a well-known one", "en"),
        ("Nein!!!", "...", "en"),
    ],
)
def test_other_marks_stay(source: str, output: str, target: str) -> None:
    assert mark_edits(source, output, target) == []


def rendered(source: str, output: str, target: str = "en") -> str:
    document = Document(source, "text")
    document.divide("de", lambda _: True, target=target)
    return document.render([Translated(output)]).text


def test_marks_are_put_right_in_known_languages_only() -> None:
    assert rendered("Nein!!!", "No!") == "No!!!"
    assert rendered("Nein!!!", "いいえ！", "ja") == "いいえ！"  # noqa: RUF001


def test_an_existing_translation_keeps_its_marks() -> None:
    document = Document("Nein!!!", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.take(0, "No!") == "No!"
    assert document.render([Translated("No!")]).text == "No!"
