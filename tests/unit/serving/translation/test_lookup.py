"""Words of a bundle's dictionary, in translations that lack them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serving.arrays import Floats
from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from serving.text.dictionary import Dictionary, DictionaryEntry
from serving.text.glossary import TermIndex
from serving.text.terms import Terms
from serving.translation.lookup import is_translated, look_up, with_entries
from serving.translation.texts import TextProcessor
from serving.translation.ticket import Request
from serving.translation.translator import ModelTranslator, Wishes
from tests.unit.serving.echo import ByteTokenizer, EchoStepper, OneStepper, echo_manifest
from tests.unit.serving.search.fake_stepper import FakeModel, Slots
from tests.unit.serving.translation.test_glossing import translation

ROWS = (
    ("de", "Apotheke/Apotheken", "en", "pharmacy/pharmacies, drugstore/drugstores"),
    ("de", "Hauptstadt/Hauptstädte", "en", "capital city/capital cities"),
    ("de", "Adler/Adler", "en", "eagle/eagles"),
    ("de", "Prise/Prisen", "en", "pinch/pinches"),
    ("de", "Salz", "en", "salt"),
    ("de", "Stufe/Stufen", "en", "stair/stairs"),
)
DICTIONARY = Dictionary(DictionaryEntry(*row) for row in ROWS)


@pytest.mark.parametrize(
    ("text", "output", "links", "wanted"),
    [
        ("Die Apotheke ist zu", "The apothek is shut", "0 1 2 3", "The pharmacy is shut"),
        ("Zwei Apotheken", "Two apotheks", "0 1", "Two pharmacies"),
        ("Apotheken sind zu", "Chemists are shut", "0 1 2", "Pharmacies are shut"),
        ("Eine Stufe", "A tread", "0 1", "A stair"),
        # An article changes before a vowel.
        ("Das ist ein Adler", "This is a bird", "0 1 2 3", "This is an eagle"),
        # Any of its translations is right, in any number, and so is a part of one.
        ("Die Apotheke ist zu", "The drugstores are shut", "0 1 2 3", "The drugstores are shut"),
        ("Die Hauptstadt ruft", "The capital calls", "0 1 2", "The capital calls"),
        ("Die Hauptstadt ruft", "The head calls", "0 1 2", "The capital city calls"),
        ("Die Stufe", "The downstair", "0 1", "The downstair"),
        # The number that a word does not say is that of the words in its place.
        ("Die Adler", "The birds", "0 1", "The eagles"),
        ("Die Adler", "The Hawk", "0 1", "The eagle"),
        ("Die Adler", "The grass", "0 1", "The eagle"),
        # Small words beside it stay.
        ("Wir sehen die Apotheke", "We look at the shop", "0 1 3 3 3", "We look at the pharmacy"),
        ("Die Apotheke im Ort", "The shop in town", "0 1 1 3", "The pharmacy in town"),
        # Names stay: after a title, and after another word that stayed.
        ("Herr Adler kommt", "Mr Hawk comes", "0 1 2", "Mr Hawk comes"),
        ("Mark Adler kommt", "Mark Adler comes", "0 1 2", "Mark Adler comes"),
        ("Der Adler kommt", "The Adler comes", "0 1 2", "The eagle comes"),
        ("2 Bund Salz", "2 Bund Salz", "0 1 2", "2 Bund salt"),
        ("Kanzler Adler kommt", "Chancellor Adler comes", "0 1 2", "Chancellor Adler comes"),
        ("Beate von Adler", "Beate of Adler", "0 - 2", "Beate of Adler"),
        # No more words are replaced than a translation has, and no sign.
        ("Der Adler", "The very large grey bird", "0 1 1 1 1", "The very large grey bird"),
        ("Der Adler kommt", "It comes.", "0 2 1", "It comes."),
        ("Eine Prise Salz", "A Prise Salz", "0 1 2", "A pinch salt"),
        # Where the links do not say its place, the translation is as it was.
        ("Die Apotheke ist zu", "It is shut", "0 2 3", "It is shut"),
        # A word alone has the capital of what was there.
        ("Apotheke", "Apothek", "0", "Pharmacy"),
        ("Apotheke", "apothek", "0", "pharmacy"),
        ("APOTHEKE", "APOTHEK", "0", "APOTHEK"),
        ("Apotheke", "Drugstore", "0", "Drugstore"),
        ("Hauptstadt!", "Capital!", "0 -", "Capital city!"),
        ("Adler", "The grey birds", "- - -", "Eagles"),
        ("Adler", "...", "- - -", "..."),
    ],
)
def test_what_a_translation_lacks_is_put_in(
    text: str, output: str, links: str, wanted: str
) -> None:
    given = translation(text, output, links)
    lookup = look_up(DICTIONARY, text, "de", "en", linked=True)
    found = given if lookup is None else with_entries(given, lookup)
    assert found.text == found.hypotheses[0].text == wanted
    assert found.warnings == ()
    assert found.hypotheses[0].alignment is not None
    for link in found.hypotheses[0].alignment:
        assert wanted[slice(*link.target)]


@pytest.mark.parametrize(
    ("text", "output", "links", "wanted"),
    [
        ("Granada es bonita", "Granada is nice", "0 1 2", "Granada is nice"),
        ("Granada", "Granada", "0", "Granada"),
        ("Granada roja", "Red granate", "1 0", "Red pomegranate"),
        ("Granada roja", "Granad red", "0 1", "Pomegranate red"),
        ("La granada", "The granada", "0 1", "The pomegranate"),
    ],
)
def test_a_first_word_that_stays_with_its_capital_is_a_name(
    text: str, output: str, links: str, wanted: str
) -> None:
    dictionary = Dictionary([DictionaryEntry("es", "granada/granadas", "en", "pomegranate")])
    lookup = look_up(dictionary, text, "es", "en", linked=False)
    assert lookup is not None
    assert with_entries(translation(text, output, links), lookup).text == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("She dyes her hair", False),
        ("They dye hair", False),
        ("We will dye it", False),
        ("Dye the shirt", False),
        ("The firm dyes its wool", False),
        ("The dye is red", True),
        ("Give my dye the name", True),
        ("Red dye and wool", True),
        ("The hair dye the girl bought", True),
    ],
)
def test_english_verbs_are_not_looked_up(text: str, found: bool) -> None:
    dictionary = Dictionary(
        [
            DictionaryEntry("en", "dye/dyes", "de", "Farbstoff"),
            DictionaryEntry("en", "hair dye", "de", "Haarfarbe"),
        ]
    )
    assert (look_up(dictionary, text, "en", "de", linked=False) is not None) is found


def test_links_that_nobody_asked_for_are_not_returned() -> None:
    lookup = look_up(DICTIONARY, "Die Apotheke", "de", "en", linked=False)
    assert lookup is not None
    found = with_entries(translation("Die Apotheke", "The shop", "0 1"), lookup)
    assert found.text == "The pharmacy"
    assert found.hypotheses[0].alignment is None


def test_texts_without_a_word_have_nothing_looked_up() -> None:
    assert look_up(DICTIONARY, "Guten Tag", "de", "en", linked=False) is None
    assert look_up(DICTIONARY, "Herr Adler", "de", "en", linked=False) is None
    assert look_up(DICTIONARY, "Die Apotheke", "en", "de", linked=False) is None


def test_a_translation_may_be_in_any_form() -> None:
    [entry] = DICTIONARY.found("Apotheke", "de", "en")
    assert is_translated(entry, "Pharmacies!", "en")
    assert not is_translated(entry, "pharmacology", "en")


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> ModelTranslator:
    """An echo with a dictionary, whose attention is on the word that it repeats."""

    def diagonal(_: FakeModel, source: tuple[int, ...], slots: Slots) -> Floats:
        return np.eye(len(source), dtype=np.float32)[min(len(slots), len(source)) - 1]

    monkeypatch.setattr(FakeModel, "attention", diagonal)
    stepper: Any = EchoStepper()
    tokenizer: Any = ByteTokenizer()
    room = BatchLimits().max_cache_bytes
    texts = TextProcessor(echo_manifest(), tokenizer, tokenizer, stepper, room, None, DICTIONARY)
    return ModelTranslator(texts, OneStepper(stepper))


def test_texts_are_translated_with_the_dictionary(translator: ModelTranslator) -> None:
    text = "Die Apotheke tropft.\n\nSo drei Stufen, <b>keine</b> Apotheken."
    (found,) = translator.translate(text)
    assert found.text == "Die pharmacy tropft.\n\nSo drei stairs, <b>keine</b> pharmacies."
    assert all(hypothesis.alignment is None for hypothesis in found.hypotheses)
    (found,) = translator.translate("Die Apotheke.", wishes=Wishes(alignments=True))
    assert found.text == "Die pharmacy."
    assert found.hypotheses[0].alignment is not None
    assert [found.text[slice(*link.target)] for link in found.hypotheses[0].alignment][1] == (
        "pharmacy"
    )


def test_the_scores_are_the_models(translator: ModelTranslator) -> None:
    options = SearchOptions(beam_size=4, num_hypotheses=2)
    (found,) = translator.translate("Die Apotheke.", options)
    (plain,) = translator.translate("Die Apotheke.", replace(options, verify=False))
    assert [each.text for each in plain.hypotheses] == ["Die Apotheke.", "Die Apothkke."]
    # Of hypotheses that became equal the first one is left.
    assert [each.text for each in found.hypotheses] == ["Die pharmacy."]
    assert found.hypotheses[0].token_scores == plain.hypotheses[0].token_scores


def test_a_glossary_has_the_last_word(translator: ModelTranslator) -> None:
    wishes = Wishes(glossary=[TermIndex([("Apotheke", "chemist's")], "de", "en")])
    (found,) = translator.translate("Die Apotheke. So drei Stufen.", wishes=wishes)
    assert found.text == "Die chemist's. So drei stairs."


@pytest.mark.parametrize(
    ("options", "wishes"),
    [
        ({"verify": False}, {}),
        ({"return_alternatives": True, "num_hypotheses": 2}, {}),
        ({}, {"terms": Terms(forbidden=("pharmacy",))}),
        ({}, {"target_prefix": "Die "}),
    ],
)
def test_nothing_is_looked_up_where_a_request_says_what_it_wants(
    translator: ModelTranslator, options: dict[str, Any], wishes: dict[str, Any]
) -> None:
    (found,) = translator.translate(
        "Die Apotheke.", SearchOptions(beam_size=4, **options), wishes=Wishes(**wishes)
    )
    assert "pharmacy" not in found.text


def test_only_sentences_without_such_a_word_are_streamed(translator: ModelTranslator) -> None:
    for text, streamed in (("Die Apotheke.", False), ("Die Kanne.", True)):
        sentence = translator.texts.prepare(Request(text=text, stream=True))
        assert sentence is not None
        assert sentence.streamed is streamed
        assert (sentence.text is None) is streamed


def test_sentences_with_and_without_links_are_not_taken_for_equal(
    translator: ModelTranslator,
) -> None:
    asked = [Request(text="Die Apotheke.", alignments=each) for each in (False, True)]
    keys = {translator.texts.prepare(each).key for each in asked if each}  # type: ignore[union-attr]
    assert len(keys) == 2
