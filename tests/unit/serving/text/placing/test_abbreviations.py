"""Abbreviations that models read as words."""

from __future__ import annotations

import pytest

from serving.text.edits import edited
from serving.text.placing.reading import reading_edits


@pytest.mark.parametrize(
    ("written", "language", "read"),
    [
        ("3,5 Mio. Menschen und 1 Mio. Euro", "de", "3,5 Millionen Menschen und 1 Million Euro"),
        ("Im 19. Jh. war es so.", "de", "Im 19. Jahrhundert war es so."),
        ("Mind. 8 Zeichen, max. 10", "de", "Mindestens 8 Zeichen, maximal 10"),
        ("Die Fahrt dauert 20 Min.", "de", "Die Fahrt dauert 20 Minuten."),
        ("Vgl. Abb. 3, S. 15 (60 qm)", "de", "Vergleiche Abbildung 3, Seite 15 (60 Quadratmeter)"),
        ("See fig. 3 on p. 12.", "en", "See figure 3 on page 12."),
        ("He weighs 180 lbs.", "en", "He weighs 180 pounds."),
        ("Vive en los EE. UU.", "es", "Vive en los Estados Unidos."),
        ("Voir p. 12.", "fr", "Voir page 12."),
    ],
)
def test_abbreviations_are_read_as_words(written: str, language: str, read: str) -> None:
    target = "de" if language == "en" else "en"
    assert edited(written, reading_edits(written, language, target)) == read


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ("Art. 3 Abs. 1 S. 2", "de"),
        ("Herr S. Klein und Min. Weber, z. B. Max", "de"),
        ("Das 1,2-Mio.-Euro-Haus", "de"),
        ("Mr. P. Smith and e.g. figs", "en"),
    ],
)
def test_what_may_mean_something_else_is_read_as_it_is(written: str, language: str) -> None:
    target = "de" if language == "en" else "en"
    assert reading_edits(written, language, target) == []
