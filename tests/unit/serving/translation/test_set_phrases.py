"""Sentences that are set phrases of the bundle."""

from __future__ import annotations

from typing import Any

import pytest

from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from serving.text.phrases import Phrase, Phrases
from serving.text.terms import Terms
from serving.translation.texts import TextProcessor
from serving.translation.translator import ModelTranslator, Wishes
from tests.unit.serving.echo import ByteTokenizer, EchoStepper, OneStepper, echo_manifest

PHRASES = Phrases(
    [
        Phrase("de", "Guten Tag!", "en", "Hello!"),
        Phrase("de", "Liebe {name},", "en", "Dear {name},"),
        Phrase("de", "Vielen Dank!", "en", "Thank you!"),
    ]
)


@pytest.fixture(scope="module")
def translator() -> ModelTranslator:
    """An echo with a phrase: it gives any other text back."""
    stepper: Any = EchoStepper()
    tokenizer: Any = ByteTokenizer()
    room = BatchLimits().max_cache_bytes
    texts = TextProcessor(echo_manifest(), tokenizer, tokenizer, stepper, room, PHRASES)
    return ModelTranslator(texts, OneStepper(stepper))


def translated(translator: ModelTranslator, text: str, **options: Any) -> str:
    return translator.translate(text, SearchOptions(**options))[0].text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Guten Tag!", "Hello!"),
        ("GUTEN TAG!", "HELLO!"),
        ("Guten Tag. Wie bitte?", "Hello. Wie bitte?"),
        ("- guten tag\n- gute Tage", "- Hello\n- gute Tage"),
        ("Liebe Anna,\nguten Tag!", "Dear Anna,\nHello!"),
        ("Liebe Anna, wie geht es?", "Dear Anna, wie geht es?"),
        ("Liebe Anna, vielen Dank!", "Dear Anna, thank you!"),
        ("Liebe {{ name }}, wie geht es?", "Dear {{ name }}, wie geht es?"),
    ],
)
def test_a_sentence_that_is_a_phrase_gets_its_translation(
    translator: ModelTranslator, text: str, wanted: str
) -> None:
    assert translated(translator, text) == wanted


def test_it_is_scored_by_the_model_and_has_no_probability(translator: ModelTranslator) -> None:
    (hypothesis,) = translator.translate("Guten Tag!")[0].hypotheses
    (scored,) = translator.score([("Guten Tag!", "Hello!")])
    assert hypothesis.token_scores == scored.token_scores
    assert hypothesis.finished
    assert hypothesis.probability is None
    links = translator.translate("Guten Tag!", wishes=Wishes(alignments=True))[0].hypotheses[0]
    assert links.text == "Hello!"


@pytest.mark.parametrize(
    "options", [{"verify": False}, {"max_length": 40}, {"return_alternatives": True}]
)
def test_the_model_translates_where_its_own_words_are_wanted(
    translator: ModelTranslator, options: dict[str, Any]
) -> None:
    assert translated(translator, "Guten Tag!", **options) == "Guten Tag!"


def test_it_is_the_only_hypothesis(translator: ModelTranslator) -> None:
    (found,) = translator.translate("Guten Tag!", SearchOptions(num_hypotheses=3))
    assert [each.text for each in found.hypotheses] == ["Hello!"]


def test_a_prefix_or_a_term_makes_it_another_translation(translator: ModelTranslator) -> None:
    for wishes in (Wishes(target_prefix="Gut"), Wishes(terms=Terms(forbidden=("Hello",)))):
        (found,) = translator.translate("Guten Tag!", wishes=wishes)
        assert found.text == "Guten Tag!"
