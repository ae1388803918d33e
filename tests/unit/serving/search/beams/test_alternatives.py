"""Alternatives at a position against separate searches, one for each first token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import CancelledError, DecodingError, InvalidOptionError
from serving.search.beams.alternatives import continuations, first_tokens
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.translation.results import SentenceOutcome
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from serving.translation.translator import Wishes
from tests.unit.serving.echo import POISON, EchoTranslator, wait_until
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper
from tests.unit.serving.search.reference_search import FakeScores, plain_search

SOURCE = (5, 9, 4, EOS_ID)
property_test = settings(max_examples=60, deadline=None, derandomize=True)


@property_test
@given(
    seed=st.integers(0, 10**6),
    beam_size=st.integers(1, 4),
    count=st.integers(1, 6),
    prefix=st.lists(st.integers(4, 8), max_size=3),
    max_length=st.integers(2, 9),
    length_penalty=st.sampled_from([0.0, 1.0]),
    min_length=st.sampled_from([0, 1]),
    eos_bias=st.sampled_from([-1.0, 2.0]),
)
def test_each_likeliest_token_is_gone_on_with_as_if_it_were_alone(
    seed: int,
    beam_size: int,
    count: int,
    prefix: list[int],
    max_length: int,
    length_penalty: float,
    min_length: int,
    eos_bias: float,
) -> None:
    model = FakeModel(vocab_size=9, seed=seed, eos_bias=eos_bias)
    options = SearchOptions(
        beam_size=beam_size,
        num_hypotheses=count,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        return_alternatives=True,
    )
    first = first_tokens(Sentence(SOURCE, options, prefix))
    (found,) = decode(FakeStepper(model), [first])
    parts = continuations(first, found)
    scores = model.log_probs(SOURCE, tuple(enumerate([BOS_ID, *prefix])))
    words = [token for token in np.argsort(-scores, kind="stable").tolist() if token != EOS_ID]
    assert [part.target_prefix[-1] for part in parts] == words[:count]
    plain = replace(
        options,
        num_hypotheses=1,
        return_alternatives=False,
        max_length=max_length - 1,
        min_length=0,
    )
    for part, word, result in zip(parts, words, decode(FakeStepper(model), parts), strict=False):
        (wanted,) = plain_search(FakeScores(model, SOURCE), plain, len(SOURCE), [*prefix, word])
        (hypothesis,) = result.hypotheses
        assert part.target_prefix == (*prefix, word)
        total = wanted.cumulative + float(scores[word])
        if length_penalty == 0.0:  # else the length, by which candidates are ranked, differs by one
            assert hypothesis.tokens == wanted.tokens
        if hypothesis.tokens == wanted.tokens:
            assert hypothesis.cumulative == pytest.approx(total, abs=1e-4)
            assert sum(hypothesis.token_scores[len(prefix) :]) == pytest.approx(total, abs=1e-4)
        length = len(hypothesis.tokens) - len(prefix) + hypothesis.finished
        normalised = hypothesis.cumulative / length**length_penalty
        assert hypothesis.score == pytest.approx(normalised, abs=1e-4)


ALTERNATIVES = SearchOptions(
    beam_size=2, num_hypotheses=3, return_alternatives=True, loop_guard=False
)


def test_texts_through_the_translator_and_through_the_scheduler() -> None:
    translator = EchoTranslator()
    (result,) = translator.translate_sentences(
        "abcdef", ALTERNATIVES, wishes=Wishes(target_prefix="xy")
    )
    assert [h.text[:3] for h in result.hypotheses[:2]] == ["xyc", "xyd"]
    assert result.text == "xycdef"
    assert len({h.tokens[2] for h in result.hypotheses}) == 3
    scheduler = TranslationScheduler(translator, workers=2)
    requests = [
        Request(text=text, options=ALTERNATIVES, target_prefix="xy", alignments=alignments)
        for text, alignments in (("abcdef", False), ("abcdef", False), ("", False), ("ghijk", True))
    ]
    same, again, blank, other = (t.result(30).translation for t in scheduler.submit_all(requests))
    assert same == again == result
    assert blank.hypotheses == ()
    assert all(hypothesis.alignment is not None for hypothesis in other.hypotheses)
    scheduler.close(30)


def test_whatever_ends_a_part_ends_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone on with fails by an error that no rule foresees."""
    translator = EchoTranslator()
    complete = translator.texts.complete

    def faulty(sentence: Sentence, finished: Finished) -> SentenceOutcome:
        if sentence.first_of is None:
            raise RuntimeError("a fault in the code")
        return complete(sentence, finished)

    monkeypatch.setattr(translator.texts, "complete", faulty)
    scheduler = TranslationScheduler(translator)
    with pytest.raises(RuntimeError, match="a fault in the code"):
        scheduler.submit(Request(text="abcdef", options=ALTERNATIVES)).result(30)
    scheduler.close(30)


def test_one_failure_and_one_departure_end_all_parts() -> None:
    translator = EchoTranslator()
    scheduler = TranslationScheduler(translator)
    with pytest.raises(DecodingError):
        scheduler.submit(Request(text=POISON, options=ALTERNATIVES)).result(30)
    translator.stepper.gate.clear()
    ticket = scheduler.submit(Request(text="abcdefgh" * 4, options=ALTERNATIVES))
    wait_until(lambda: scheduler.queue_depth == 0)
    steps = translator.stepper.steps
    ticket.cancel()
    translator.stepper.gate.set()
    with pytest.raises(CancelledError):
        asyncio.run(ticket.wait())
    scheduler.close(30)
    assert translator.stepper.steps < steps + 10


def test_options_that_do_not_fit() -> None:
    with pytest.raises(InvalidOptionError, match="at most 63 with return_alternatives, got 64"):
        SearchOptions(num_hypotheses=64, return_alternatives=True)
    with pytest.raises(InvalidOptionError, match="max_length must be at least 2"):
        SearchOptions(max_length=1, return_alternatives=True)
