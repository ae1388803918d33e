"""Words in capitals within sentences, and labels, with a vocabulary of a few words."""

from __future__ import annotations

import pytest

from serving.text.alignment import Link
from serving.text.document import Document, Format
from serving.text.glossary import TermIndex, terms_of
from serving.text.growing import GrowingTexts
from serving.text.placing.casing import label_in_small_letters
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import same

SCORES = dict.fromkeys(
    """
    nicht immer keine Fehler open not never the who it us tu mit todo no all press enter null and
    """.split(),  # noqa: SIM905
    -8.0,
)
SCORES |= dict.fromkeys(("pan", "prix", "hope", "windows", "nom"), -10.0) | {"Windows": -9.0}
SCORES |= {"NATO": -7.0, "nato": -9.0, "NOT": -12.0, "Fehler": -9.0}


def read(text: str, language: str = "en", format: Format = "text") -> Document:
    document = Document(text, format)
    document.divide(language, lambda _: True, score=SCORES.get)
    return document


def translated(text: str, language: str = "en", format: Format = "text") -> str:
    document = read(text, language, format)
    return document.render([Translated(f"{s} ", same(s).links) for s in document.sentences]).text


@pytest.mark.parametrize(
    ("language", "source", "read_as"),
    [
        ("de", "Bitte NICHT öffnen!", "Bitte nicht öffnen!"),
        ("de", "Das ist ein FEHLER.", "Das ist ein Fehler."),
        ("de", "KEINE Zeit, NIE.", "Keine Zeit, NIE."),
        ("de", "Kaffee MIT Milch", "Kaffee mit Milch"),
        ("en", "Do NOT open (NEVER)", "Do not open (never)"),
        ("es", "Quiero saberlo TODO.", "Quiero saberlo todo."),
        ("fr", "C'est TU qui", "C'est tu qui"),
    ],
)
def test_ordinary_words_in_capitals_are_read_in_small_letters(
    language: str, source: str, read_as: str
) -> None:
    assert read(source, language).sentences == [read_as]
    assert translated(source, language) == f"{source} "


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("en", "The WHO and NATO met."),  # another meaning, or likelier in capitals
        ("en", "She studied at MIT with XYZ."),
        ("en", "Ask IT in the US."),
        ("de", "Sie ist an der TU."),
        ("en", "Press ENTER."),
        ("en", "TODO: open it"),
        ("en", "Use AND and NOT."),
        ("en", "Set it to NULL, NOT to x."),
        ("en", 'Type "ALL", --ALL, NOT_ALL, ALL/NOT or ALL.txt'),
        ("en", "The PLAN NOT is a band."),  # one word of the run is unknown
        ("it", "Do NOT open"),  # nobody has measured this
        ("en", "Open {NOT} and `ALL` and https://x.org/NOT"),
    ],
)
def test_acronyms_keys_and_code_stay_in_capitals(language: str, source: str) -> None:
    plain = Document(source, "text")
    plain.divide(language, lambda _: True)
    assert read(source, language).sentences == plain.sentences


def test_without_scores_words_stay_as_they_are() -> None:
    document = Document("Do NOT open", "text")
    document.divide("en", lambda _: True)
    assert document.sentences == ["Do NOT open"]
    assert not document.needs_links


def test_a_short_word_alone_is_a_sentence_in_capitals() -> None:
    assert read("OPEN").sentences == ["Open"]
    assert read("OPEN").render([Translated("offen")]).text == "OFFEN"
    assert read("NATO").sentences == ["NATO"]


def test_only_the_best_links_are_written_in_capitals() -> None:
    """Attention links articles to the words beside them."""
    document = read("I did NOT see it.")
    assert document.needs_links
    text = "Je ne dois pas"
    links = [
        Link((6, 9), (3, 5), 0.46),
        Link((6, 9), (11, 14), 0.7),
        Link((10, 13), (6, 10), 0.9),
    ]
    assert document.render([Translated(text, links)]).text == "Je ne dois PAS"
    assert document.render([Translated(text)]).text == text


def test_links_move_where_a_letter_becomes_two() -> None:
    document = read("NEVER x")
    links = [Link((0, 5), (0, 3), 0.9), Link((6, 7), (4, 5), 0.9)]
    rendered = document.render([Translated("Maß y", links)])
    assert rendered.text == "MASS y"
    assert [rendered.text[slice(*link.target)] for link in rendered.links] == ["MASS", "y"]


def test_markup_around_a_word_in_capitals() -> None:
    assert translated("<p>Do <b>NOT</b> open.</p>", format="html") == "<p>Do <b>NOT</b> open. </p>"


def test_such_a_sentence_is_told_at_its_end() -> None:
    source = "It is open. Do NOT open. It is open."
    document, first, second = read(source), "Es ist.", "Du nicht."
    growing = GrowingTexts([document])
    links = [Link((3, 6), (3, 8), 0.9)]
    assert growing.update(0, "Es") == (0, "Es")
    assert growing.ended(0, first) == (0, "Es ist. ")
    assert growing.update(1, "Du") is None
    assert growing.ended(1, second, links) == (0, "Es ist. Du NICHT. ")
    whole = [Translated(first), Translated(second, links), Translated("Es.")]
    assert growing.ended(2, "Es.") == (0, document.render(whole).text)


def test_terms_of_a_glossary_are_those_in_capitals() -> None:
    index = TermIndex([("OPEN", "AUF"), ("open", "offen")], "en", "de")
    (match,) = terms_of([index], read("Do NOT OPEN it."), 0)
    assert (match.target, match.span) == ("AUF", (7, 11))


@pytest.mark.parametrize(
    ("language", "label", "small"),
    [
        ("fr", "Prix", "prix"),
        ("fr", "Nom d'un ami:", "nom d'un ami:"),
        ("es", "Pan blanco", "pan blanco"),
        ("es", "Pan blanco de hoy", ""),  # too long
        ("es", "Pan Blanco", ""),
        ("es", "Pan.", ""),
        ("en", "Hope", ""),  # a name
        ("en", "Windows", ""),  # likelier with its capital
        ("en", "Xyz", ""),
        ("de", "Pan", ""),
        ("en", "prix", ""),
    ],
)
def test_a_label_may_be_read_with_a_small_letter(language: str, label: str, small: str) -> None:
    assert (label_in_small_letters(label, language, SCORES.get) or "") == small


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("Pan blanco", "white bread", "White bread"),
        ("Pan", "iPhone", "iPhone"),
        ("Pan", "¿pan?", "¿Pan?"),
        ("pan", "bread", "bread"),
        ("Pan.", "bread.", "bread."),
        ("- Pan", "bread", "- Bread"),
    ],
)
def test_the_translation_of_a_label_begins_with_a_capital(
    source: str, translation: str, written: str
) -> None:
    document = Document(source, "markdown")
    document.divide("es", lambda _: True, score=SCORES.get)
    growing = GrowingTexts([document])
    growing.update(0, translation[:1])
    assert growing.ended(0, translation) == (0, written)
    assert document.render([Translated(translation)]).text == written


@pytest.mark.parametrize(
    ("language", "source", "read_as"),
    [
        ("en", "Open The Nom To All", "Open the nom To all"),
        ("en", "Never And Never", "Never and never"),
        ("en", "Press The Windows NATO", "Press the Windows NATO"),
        ("en", "The Not Hope", "The Not Hope"),  # nothing between nouns
        ("en", "Never And Hope Not", "Never and Hope not"),  # a name
        ("en", "Never And not", "Never And not"),
        ("en", "Never And Never.", "Never And Never."),
        ("fr", "Never And Never", "Never And Never"),
    ],
)
def test_words_of_a_title_are_read_in_small_letters(
    language: str, source: str, read_as: str
) -> None:
    document = read(source, language)
    assert document.sentences == [read_as]
    if source != read_as:
        assert document.render([Translated("nie und nie")]).text == "Nie und nie"


def test_a_label_in_a_memory_stays_as_it_is() -> None:
    document = read("Pan", "es")
    known = document.take(0, "bread")
    assert known is not None
    assert document.render([Translated(known)]).text == "bread"
