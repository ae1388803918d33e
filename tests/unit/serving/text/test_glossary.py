"""Terms of a glossary that a text holds."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import InvalidOptionError
from serving.text.document import Document
from serving.text.glossary import TermIndex, matched_terms, terms_of
from serving.text.inflection import stem

GERMAN = TermIndex(
    [
        ("Haus", "home"),
        ("rotes Haus", "red home"),
        ("Essen", "meal"),
        ("essen", "eat"),
        ("US", "USA"),
        ("Straße", "road"),
        ("C++", "C plus plus"),
        ("Mail", "letter"),
        ("E-Mail", "message"),
        ("Rock'n'Roll", "rock"),
    ],
    "de",
    "en",
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Zwei Häuser.", ["Häuser: home"]),
        ("HÄUSER", ["HÄUSER: home"]),
        ("Ha\u0308user", ["Ha\u0308user: home"]),  # of two code points
        ("Haushalt und Hochhaus", []),
        ("ein rotes Haus, ein Haus", ["rotes Haus: red home", "Haus: home"]),
        ("ein rotes\n  Haus", ["rotes\n  Haus: red home"]),
        ("Das Essen essen", ["Essen: meal", "essen: eat"]),
        ("us US", ["US: USA"]),
        ("STRASSEN, Straßen", ["STRASSEN: road", "Straßen: road"]),
        ("in C++ und C", ["C++: C plus plus"]),
        ("E-Mails und Mails, E-Mail-Adresse", ["E-Mails: message", "Mails: letter"]),
        ("E\u2011Mail-Adresse, E\u2011Mail", ["E\u2011Mail: message"]),
        ("Rock\u2019n\u2019Roll", ["Rock\u2019n\u2019Roll: rock"]),
        ("", []),
        ("C+", []),
    ],
)
def test_terms_in_all_their_forms(text: str, found: list[str]) -> None:
    matches = matched_terms([GERMAN], text)
    assert [f"{text[slice(*match.span)]}: {match.target}" for match in matches] == found


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("Haus", " ")], "must have a translation, got none of 'Haus'"),
        ({"ab": "cd"}, "pairs of a term and its translation, got 'ab'"),
        ([("Haus", "home", "house")], "pairs of a term"),
        ([("Haus", None)], "pairs of a term"),
    ],
)
def test_what_is_no_entry_is_refused(entries: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        TermIndex(entries, "de", "en")


@pytest.mark.parametrize(
    ("text", "entry", "found"),
    [
        ("Siehe https://haus.de/Haus heute.", ("Tom", "Thomas"), []),
        ("Siehe https://haus.de/Haus heute.", ("Haus", "home"), []),
        ("Bei https://x.de das Haus.", ("Haus", "home"), [("Haus", "home")]),
        ("Er mag C# sehr.", ("C#", "C#"), [("Tom", "Tom")]),
        ("Er mag C# sehr.", ("C#", "C Sharp"), [("", "C Sharp")]),
        ("Der AT&T Laden ist neu.", ("AT&T Laden", "AT&T shop"), [("Tom Laden", "Tom shop")]),
        (
            "Die GmbH & Co. KG zahlt.",
            ("GmbH & Co. KG", "Ltd. & Co."),
            [("GmbH und Co. KG", "Ltd. and Co.")],
        ),
        ("Die GmbH & Co. KG zahlt.", ("GmbH & Co. KG", "LP"), [("", "LP")]),
    ],
)
def test_terms_are_those_of_the_given_text_not_of_the_masks_in_it(
    text: str, entry: tuple[str, str], found: list[tuple[str, str]]
) -> None:
    document = Document(text, "text")
    document.divide("de", lambda _: True, target="en")
    (sentence,) = document.sentences
    matches = terms_of([TermIndex([entry], "de", "en")], document, 0)
    assert [(sentence[slice(*match.span)], match.target) for match in matches] == found


def test_spaces_around_a_term_are_no_part_of_it() -> None:
    (match,) = matched_terms([TermIndex([(" Haus ", " home\n")], "de", "en")], "Haus")
    assert (match.source, match.target) == ("Haus", "home")


def test_the_longest_wins_whichever_glossary_it_is_of() -> None:
    other = TermIndex([("Haus", "house"), ("Haus am See", "lake house")], "de", "en")
    found = [match.target for match in matched_terms([GERMAN, other], "Haus, Haus am See")]
    assert found == ["home", "lake house"]


def test_scripts_without_spaces_are_read_letter_by_letter() -> None:
    index = TermIndex([("契約", "covenant")], "ja", "en")
    assert len(matched_terms([index], "この契約は新しい契約です")) == 2


def test_a_sentence_has_so_many_terms() -> None:
    assert len(matched_terms([GERMAN], "Haus " * 1000)) == 64


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ("Haus Häuser Häusern", "de"),
        ("pump pumps PUMPS", "en"),
        ("ville villes", "fr-CA"),
        ("xx XX", "tlh"),
    ],
)
def test_forms_of_a_word_share_a_stem(words: str, language: str) -> None:
    assert len({stem(word, language) for word in words.split()}) == 1
