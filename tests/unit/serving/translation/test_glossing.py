"""Terms that are put where their sources are translated."""

from __future__ import annotations

import re

import numpy as np
import pytest

from serving.arrays import Floats
from serving.text.alignment import Link, word_spans
from serving.text.glossary import TermIndex, matched_terms
from serving.translation.glossing import with_terms
from serving.translation.results import TextHypothesis, Translation
from serving.translation.translator import Wishes
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.search.fake_stepper import FakeModel, Slots


def translation(text: str, output: str, links: str) -> Translation:
    """An output whose words are linked to words of a text: `0 1 -`, one for each, by number."""
    sources = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    targets = [match.span() for match in re.finditer(r"\w+|[^\w\s]", output)]
    found = tuple(
        Link(sources[int(number)], target, 0.9)
        for number, target in zip(links.split(), targets, strict=True)
        if number != "-"
    )
    hypothesis = TextHypothesis(output, -1.0, -1.0, (), (), finished=True, alignment=found)
    return Translation(output, (hypothesis,))


ENTRIES = [
    ("Pumpe", "impeller"),
    ("Ventil", "stopcock"),
    ("Leistungsschalter", "circuit breaker"),
    ("schnell", "swiftly"),
    ("Vertrag", "covenant"),
    ("US", "USA"),
    ("C++", "Cpp"),
    ("(netto)", "[net]"),
    ("GmbH", "Ltd."),
    ("Hof", "iYard court"),
    ("Helm", "hard hat"),
    ("Werk", "in the works"),
]


@pytest.mark.parametrize(
    ("text", "output", "links", "wanted"),
    [
        ("Die Pumpe ist neu", "The pump is new", "0 1 2 3", "The impeller is new"),
        ("DIE PUMPE IST NEU", "THE PUMP IS NEW", "0 1 2 3", "THE IMPELLER IS NEW"),
        ("Schnell lief er", "Quickly he ran", "0 2 1", "Swiftly he ran"),
        ("Schnell lief er", "He ran quickly", "2 1 0", "He ran swiftly"),
        # An article that is linked to the noun stays, and becomes another one before a vowel.
        ("Neben einer Pumpe", "Near a pump", "0 2 2", "Near an impeller"),
        ("Eine Pumpe", "A pump", "1 1", "An impeller"),
        ("Alte Leistungsschalter", "Old performance switches", "0 1 1", "Old circuit breaker"),
        # A term may have small words of its own.
        ("Mit Helm", "In a helmet", "0 - 1", "In a hard hat"),
        ("Im Werk", "At works", "0 1", "At in the works"),
        # What is there already stays as it is, in whatever form.
        ("Zwei Pumpen", "Two impellers", "0 1", "Two impellers"),
        # What is nothing but a term is its translation, to the letter.
        ("Vertrag", "Covenant", "0", "covenant"),
        ("Pumpe", "a pump house", "0 0 0", "impeller"),
        ("Pumpe und Ventil", "Valve and pump", "2 1 0", "Stopcock and impeller"),
        ("Pumpe an Pumpe", "Pump to pump", "0 1 2", "Impeller to impeller"),
        # Signs of the source's term belong to the words that translate it.
        ("Er mag C++ nicht", "He likes C++ not", "0 1 2 3 4 5", "He likes Cpp not"),
        ("Preise (netto)", "Prices (net)", "0 1 2 3", "Prices [net]"),
        # A full stop ends both an abbreviation and the sentence.
        ("Die GmbH.", "The company.", "0 1 2", "The Ltd."),
        ("Die GmbH...", "The company...", "0 1 2 3 4", "The Ltd...."),
        ("Hof und Pumpe", "Yard and pump", "0 1 2", "iYard court and impeller"),
    ],
)
def test_a_term_takes_the_place_of_the_words_that_translate_its_source(
    text: str, output: str, links: str, wanted: str
) -> None:
    index = TermIndex(ENTRIES, "de", "en")
    found = with_terms(translation(text, output, links), text, matched_terms([index], text), "en")
    assert found.text == found.hypotheses[0].text == wanted
    assert found.warnings == ()
    for link in found.hypotheses[0].alignment or ():
        assert not re.match(r"\s|$", wanted[slice(*link.target)])


@pytest.mark.parametrize(
    ("output", "links"), [("The new one", "0 2 2"), ("It", "-"), ("The us", "0 -")]
)
def test_a_term_without_a_place_is_a_warning(output: str, links: str) -> None:
    text = "Die US neu"
    index = TermIndex(ENTRIES, "de", "en")
    found = with_terms(translation(text, output, links), text, matched_terms([index], text), "en")
    assert found.text == output
    assert found.warnings == ("constraints",)


def test_nothing_happens_without_terms() -> None:
    given = translation("Das", "That", "0")
    assert with_terms(given, "Das", (), "en") is given
    blank = Translation("")
    assert with_terms(blank, "", (), "en") is blank


def test_a_translator_takes_glossaries(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagonal(_: FakeModel, source: tuple[int, ...], slots: Slots) -> Floats:
        return np.eye(len(source), dtype=np.float32)[min(len(slots), len(source)) - 1]

    monkeypatch.setattr(FakeModel, "attention", diagonal)
    wishes = Wishes(glossary=[TermIndex(ENTRIES, "de", "en")])
    text = "Die Pumpe.\n\nDas Ventil tropft."
    (found,) = EchoTranslator().translate(text, wishes=wishes)
    assert found.text == "Die impeller.\n\nDas stopcock tropft."
    assert found.hypotheses[0].alignment is None
    (plain,) = EchoTranslator().translate(text)
    assert plain.text == text


def test_what_is_kept_stays_whatever_is_read_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagonal(_: FakeModel, source: tuple[int, ...], slots: Slots) -> Floats:
        return np.eye(len(source), dtype=np.float32)[min(len(slots), len(source)) - 1]

    monkeypatch.setattr(FakeModel, "attention", diagonal)
    entries = [*ENTRIES, ("Tom", "Thomas"), ("C#", "C Sharp"), ("AT&T Laden", "AT&T shop")]
    wishes = Wishes(glossary=[TermIndex(entries, "de", "en")])
    for text, wanted, warnings in (
        ("Siehe https://x.de/Pumpe heute.", "Siehe https://x.de/Pumpe heute.", ()),
        ("Der AT&T Laden tropft.", "Der AT&T shop tropft.", ()),
        ("Wir mögen C# sehr.", "Wir mögen C# sehr.", ("constraints",)),
    ):
        (found,) = EchoTranslator().translate(text, wishes=wishes)
        assert (found.text, found.warnings) == (wanted, warnings)


@pytest.mark.parametrize(
    ("text", "output", "links", "wanted"),
    [
        ("the pump", "l’eau", "1", "la turbine"),
        ("of the pump", "d'eau", "2", "de turbine"),
        ("the valve", "l'eau", "1", "l'obturateur"),
        ("the valve", "le robinet", "- 1", "l'obturateur"),
        ("some valve", "de robinet", "- 1", "d'obturateur"),
        ("the lake", "l'eau", "1", "le bassin"),
        ("the lakes", "les eaux", "- 1", "les bassin"),
        ("the yard", "la cour", "- 1", "la halle"),
        ("the yard", "l'eau", "1", "l'halle"),
        ("The lake", "L'eau", "1", "Le bassin"),
        ("the ice", "le gel", "- 1", "l'eau froide"),
        ("of the lake", "de l'eau", "- 2", "du bassin"),
        ("to the lake", "à l'eau", "- 2", "au bassin"),
        ("To the lake", "À l'eau", "- 2", "Au bassin"),
        ("to the pump", "à l'eau", "- 2", "à la turbine"),
        ("of the valve", "du robinet", "- 2", "de l'obturateur"),
        ("to the valve", "Au robinet", "- 2", "À l'obturateur"),
        ("the wood", "l'arbre", "1", "un bois"),
    ],
)
def test_french_words_before_a_vowel_are_short(
    text: str, output: str, links: str, wanted: str
) -> None:
    entries = [
        ("pump", "turbine"),
        ("valve", "obturateur"),
        ("lake", "bassin"),
        ("yard", "halle"),
        ("ice", "eau froide"),
        ("wood", "un bois"),
    ]
    given = translation_of_words(text, output, links)
    terms = matched_terms([TermIndex(entries, "en", "fr")], text)
    assert with_terms(given, text, terms, "fr").text == wanted


def translation_of_words(text: str, output: str, links: str) -> Translation:
    """An output whose words, with what is elided before them, are linked to words of a text."""
    sources = [match.span() for match in re.finditer(r"\w+", text)]
    targets = word_spans(output)
    found = tuple(
        Link(sources[int(number)], target, 0.9)
        for number, target in zip(links.split(), targets, strict=True)
        if number != "-"
    )
    hypothesis = TextHypothesis(output, -1.0, -1.0, (), (), finished=True, alignment=found)
    return Translation(output, (hypothesis,))
