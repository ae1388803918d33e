"""German forms for all genders, which models read as the feminine form or as one of a pair."""

from __future__ import annotations

import itertools

import pytest

from serving.text.document import Document
from serving.text.edits import edited
from serving.text.placing.reading import reading_edits

READ = [
    ("Alle Mitarbeiter*innen sind da.", "Alle Mitarbeiterinnen sind da."),
    ("Liebe Kolleg:innen!", "Liebe Kolleginnen!"),
    ("Schüler/innen und Lehrer/-innen", "Schülerinnen und Lehrerinnen"),
    ("Unsere Kund_innen", "Unsere Kundinnen"),
    ("Mitarbeiter(innen) und Lehrer(in)", "Mitarbeiterinnen und Lehrerin"),
    ("Der Bürger*innen-Service", "Der Bürgerinnen-Service"),
    ("Die Kund*innenbefragung", "Die Kundinnenbefragung"),
    ("Jede*r Teilnehmer*in", "Jede Teilnehmerin"),
    ("eine/n Verkäufer/in", "eine Verkäuferin"),
    ("Ein:e gute:r Freund:in", "Eine gute Freundin"),
    ("mit einer/m Ärzt/in", "mit einer Ärztin"),
    ("Der/die Mieter/in", "Die Mieterin"),
    ("dem*der Mieter*in", "der Mieterin"),
    ("des/der Kund/in", "der Kundin"),
    ("einem*einer Freund*in", "einer Freundin"),
    ("ein/eine oder eine/einen Freund/in", "eine oder eine Freundin"),
    ("Er/sie zahlt für seine/ihre Karte.", "Er oder sie zahlt für seine oder ihre Karte."),
]
PAIRS = [
    ("Liebe Bürgerinnen und Bürger!", "Liebe Bürger!"),
    ("Die Kundinnen und Kunden", "Die Kunden"),
    ("von Schülerinnen oder Schülern", "von Schülern"),
    ("Kunden sowie Kundinnen", "Kunden"),
]
OTHERS = (
    "Freundinnen und Bekannte",
    "Liebe Kolleginnen und Kollegen!",
    "Log_in und https://a.de/Kunden/innen und src/Foo/in",
    "120 km/h, 3 Euro/m² und 5 Seiten",
    "Die Maße a*n und b*r",
    "Und/oder sowie innen und außen",
    "Damen und Herren",
)


@pytest.mark.parametrize(("written", "read"), READ + PAIRS)
def test_a_form_for_all_genders_is_read_as_a_word(written: str, read: str) -> None:
    assert edited(written, reading_edits(written, "de", "en")) == read


@pytest.mark.parametrize(("written", "read"), PAIRS)
def test_languages_that_tell_two_forms_apart_keep_both(written: str, read: str) -> None:
    assert reading_edits(written, "de", "fr") == []


@pytest.mark.parametrize("written", OTHERS)
def test_what_is_no_such_form_is_read_as_it_is(written: str) -> None:
    assert reading_edits(written, "de", "en") == []


@pytest.mark.parametrize(("written", "read"), READ)
def test_other_languages_have_no_such_forms(written: str, read: str) -> None:
    assert reading_edits(written, "en", "de") == []


def test_edits_of_one_sentence_do_not_overlap() -> None:
    for one, other in itertools.product([written for written, _ in READ + PAIRS], repeat=2):
        for joined in (f"{one} {other}", f"{one}/{other}", f"{one}{other}"):
            edits = reading_edits(joined, "de", "en")
            for first, second in itertools.pairwise(edits):
                assert first.span[1] <= second.span[0], joined


@pytest.mark.parametrize(("written", "read"), READ + PAIRS)
def test_the_signs_are_not_kept(written: str, read: str) -> None:
    """A model reads the whole sentence, and a translation that is the source is as it was."""
    document = Document(written, "text")
    document.divide("de", lambda _: True, target="en")
    assert document.sentences == [read]
    assert document.as_given(0) == written


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("a*n", "*"),
        ("size*n", "*"),
        ("2*r", "*"),
        ("*in", "*"),
        ("src/*.py", "src/*.py"),
        ("snake_in_case", "snake_in_case"),
    ],
)
def test_signs_of_code_are_kept(written: str, kept: str) -> None:
    document = Document(f"Das Feld {written} ist neu.", "text")
    document.divide("de", lambda _: True, target="en")
    assert kept not in document.sentences[0]
