"""Beam search against exhaustive enumeration and against a plain beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from serving.errors import DecodingError
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Finished, Hypothesis, Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.stepper import StepInputs, StepOutputs
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper
from tests.unit.serving.search.reference_search import (
    FakeScores,
    Result,
    enumerate_all,
    plain_search,
)

SOURCE = (5, 9, 4, EOS_ID)
# Shrinking is left out: an example takes long, and the first failing one is short enough to read.
property_test = settings(
    max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


def decode_one(model: FakeModel, sentence: Sentence) -> Finished:
    (finished,) = decode(FakeStepper(model), [sentence])
    return finished


def assert_same(found: Sequence[Hypothesis], wanted: Sequence[Result]) -> None:
    """Equal hypotheses in equal order, but that near ties may change places."""
    assert len(found) == len(wanted)
    assert [h.score for h in found] == pytest.approx([w.score for w in wanted], abs=1e-4)
    by_tokens = {(w.tokens, w.finished): w for w in wanted}
    for hypothesis in found:
        twin = by_tokens[hypothesis.tokens, hypothesis.finished]
        assert hypothesis.score == pytest.approx(twin.score, abs=1e-4)
        assert hypothesis.cumulative == pytest.approx(twin.cumulative, abs=1e-4)
        assert hypothesis.token_scores == pytest.approx(twin.token_scores, abs=1e-4)


penalties = st.fixed_dictionaries(
    {
        "length_penalty": st.sampled_from([-0.5, 0.3, 1.0, 2.0]),
        "length_penalty_form": st.sampled_from(["power", "gnmt"]),
        "eos_in_length": st.booleans(),
        "coverage_penalty": st.sampled_from([0.0, 0.4]),
        "patience": st.sampled_from([1.0, 1.5]),
    }
)


# Two words and eos: after five steps 2 + 4 + 8 + 16 beams have lived and 63 hypotheses have ended.
@property_test
@given(
    seed=st.integers(0, 10**6),
    values=penalties,
    min_length=st.integers(0, 4),
    prefix=st.lists(st.sampled_from([1, 4]), max_size=3),
)
def test_a_wide_beam_equals_exhaustive_enumeration(
    seed: int, values: dict[str, Any], min_length: int, prefix: list[int]
) -> None:
    model = FakeModel(vocab_size=5, seed=seed, forbidden=(0, 2))
    options = SearchOptions(
        beam_size=64, num_hypotheses=63, min_length=min_length, max_length=5, **values
    )
    wanted = enumerate_all(model, SOURCE, options, prefix)
    assert_same(decode_one(model, Sentence(SOURCE, options, prefix)).hypotheses, wanted)


@property_test
@given(seed=st.integers(0, 10**6), eos_bias=st.sampled_from([-2.0, 0.0, 2.0]))
def test_without_penalties_the_best_of_all_hypotheses_is_found(seed: int, eos_bias: float) -> None:
    model = FakeModel(vocab_size=5, seed=seed, eos_bias=eos_bias)
    options = SearchOptions(beam_size=36, length_penalty=0.0, max_length=3)
    wanted = enumerate_all(model, SOURCE, options)[:1]
    assert_same(decode_one(model, Sentence(SOURCE, options)).hypotheses, wanted)


small_beams = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 6),
        "length_penalty": st.sampled_from([0.0, 0.6, 1.0]),
        "length_penalty_form": st.sampled_from(["power", "gnmt"]),
        "eos_in_length": st.booleans(),
        "coverage_penalty": st.sampled_from([0.0, 0.0, 0.3]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.5]),
        "no_repeat_ngram_size": st.sampled_from([0, 0, 1, 2]),
        "min_length": st.integers(0, 8),
        "max_length": st.integers(9, 30),
        "patience": st.sampled_from([0.5, 1.0, 1.0, 1.7]),
    }
)


@settings(property_test, max_examples=250)
@given(
    seed=st.integers(0, 10**6),
    values=small_beams,
    vocab_size=st.integers(4, 12),
    eos_bias=st.sampled_from([-3.0, -1.0, 1.0]),
    prefix=st.lists(st.integers(4, 11), max_size=9),
    all_hypotheses=st.booleans(),
)
def test_equals_a_plain_beam_search(
    seed: int,
    values: dict[str, Any],
    vocab_size: int,
    eos_bias: float,
    prefix: list[int],
    all_hypotheses: bool,
) -> None:
    prefix = [token for token in prefix if token < vocab_size]
    model = FakeModel(vocab_size=vocab_size, seed=seed, eos_bias=eos_bias)
    options = SearchOptions(**values)
    if all_hypotheses:
        options = replace(options, num_hypotheses=options.max_finished)
    wanted = plain_search(FakeScores(model, SOURCE), options, len(SOURCE), prefix)
    finished = decode_one(model, Sentence(SOURCE, options, prefix))
    if not wanted:  # forbidding all repetitions of so few words can leave nothing to say
        assert "leave no token that could continue this sentence" in str(finished.error)
        return
    assert_same(finished.hypotheses, wanted)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_a_long_output_crosses_many_repacks(beam_size: int) -> None:
    model = FakeModel(vocab_size=40, eos_bias=-50.0)
    options = SearchOptions(beam_size=beam_size, num_hypotheses=beam_size, max_length=90)
    wanted = plain_search(FakeScores(model, SOURCE), options, len(SOURCE), [7, 8])
    assert_same(decode_one(model, Sentence(SOURCE, options, [7, 8])).hypotheses, wanted)


def test_greedy_takes_the_best_token_each_time() -> None:
    model = FakeModel(vocab_size=20, seed=3)
    options = SearchOptions(beam_size=1, max_length=99)
    history = [BOS_ID]
    while history[-1] != EOS_ID:
        history.append(int(model.logits(SOURCE, tuple(enumerate(history))).argmax()))
    finished = decode_one(model, Sentence(SOURCE, options))
    assert finished.hypotheses[0].tokens == tuple(history[1:-1])
    assert finished.hypotheses[0].finished


def test_only_an_end_ranked_in_the_beam_finishes() -> None:
    """Beam 1: eos is always second best, so the output runs to max_length."""

    class SecondBest(FakeModel):
        def logits(self, source: Any, slots: Any) -> Any:
            logits = super().logits(source, slots).copy()
            logits[EOS_ID] = -np.inf
            logits[EOS_ID] = logits.max() - 0.01
            return logits

    finished = decode_one(SecondBest(), Sentence(SOURCE, SearchOptions(beam_size=1, max_length=7)))
    (hypothesis,) = finished.hypotheses
    assert len(hypothesis.tokens) == 7
    assert not hypothesis.finished


class ConfidentModel(FakeModel):
    """The next word has 0.9, eos 0.1 at first; after five words it is the other way round."""

    def logits(self, source: Any, slots: Any) -> Any:
        logits = np.full(self.vocab_size, -30, dtype=np.float32)
        logits[[4, EOS_ID]] = np.log([0.9, 0.1] if len(slots) <= 5 else [0.1, 0.9])
        return logits


def test_without_penalties_the_search_goes_on_until_its_best_beam_ends() -> None:
    """Two poor hypotheses end long before; with a length penalty they would be enough."""
    options = SearchOptions(beam_size=2, length_penalty=0.0)
    stepper = FakeStepper(ConfidentModel())
    (finished,) = decode(stepper, [Sentence(SOURCE, options)])
    assert stepper.calls == 6
    assert finished.hypotheses[0].tokens == (4,) * 5
    assert finished.hypotheses[0].cumulative == pytest.approx(6 * np.log(0.9), abs=1e-4)
    penalised = decode_one(ConfidentModel(), Sentence(SOURCE, replace(options, length_penalty=1.0)))
    assert penalised.hypotheses[0].tokens == (4,)


def test_patience_bounds_the_finished_hypotheses() -> None:
    for patience, steps in ((0.5, 1), (1.0, 2), (2.0, 4)):
        stepper = FakeStepper(ConfidentModel())
        decode(stepper, [Sentence(SOURCE, SearchOptions(beam_size=2, patience=patience))])
        assert stepper.calls == steps


def test_rows_of_finished_sentences_are_given_back() -> None:
    """At most a quarter of the rows are idle."""
    model = FakeModel(eos_bias=-99.0)
    lengths = [3, 4, 5, 6, 7, 9, 20, 21]
    stepper, rows = FakeStepper(model), []
    sentences = [Sentence(SOURCE, SearchOptions(beam_size=2, max_length=n)) for n in lengths]
    search = BeamSearch(stepper, sentences)
    while search.live:
        search.step()
        rows.append(len(stepper.states[0].sources))
    assert rows[:8] == [8, 8, 8, 8, 5, 5, 3, 3]
    assert rows[8:] == [2] * 11 + [1, 1]


def test_default_max_length_follows_the_source() -> None:
    model = FakeModel(eos_bias=-99.0)
    options = SearchOptions(beam_size=2)
    assert len(decode_one(model, Sentence(SOURCE, options)).hypotheses[0].tokens) == 18
    long_source = [5] * 200
    assert len(decode_one(model, Sentence(long_source, options)).hypotheses[0].tokens) == 256


def test_scores_are_sums_and_start_with_the_prefix() -> None:
    model = FakeModel(seed=11)
    options = SearchOptions(beam_size=3, num_hypotheses=3)
    for hypothesis in decode_one(model, Sentence(SOURCE, options, [6, 7])).hypotheses:
        assert hypothesis.tokens[:2] == (6, 7)
        assert len(hypothesis.token_scores) == len(hypothesis.tokens) + hypothesis.finished
        assert sum(hypothesis.token_scores[2:]) == pytest.approx(hypothesis.cumulative, abs=1e-5)


def random_sentences(rng: np.random.Generator, count: int, beam_size: int) -> list[Sentence]:
    """Sentences of mixed lengths, options and prefixes."""
    sentences = []
    for _ in range(count):
        source = (*rng.integers(4, 30, rng.integers(1, 20)).tolist(), EOS_ID)
        options = SearchOptions(
            beam_size=beam_size,
            num_hypotheses=beam_size,
            max_length=int(rng.integers(6, 40)),
            min_length=int(rng.choice([0, 0, 5])),
            no_repeat_ngram_size=int(rng.choice([0, 0, 2])),
            coverage_penalty=float(rng.choice([0.0, 0.0, 0.2])),
        )
        prefix = rng.integers(4, 30, int(rng.choice([0, 0, 1, 3, 9]))).tolist()
        sentences.append(Sentence(source, options, prefix))
    return sentences


@settings(property_test, max_examples=25)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 12), beam_size=st.sampled_from([1, 2, 5]))
def test_a_sentence_comes_out_the_same_in_any_batch(seed: int, count: int, beam_size: int) -> None:
    rng = np.random.default_rng(seed)
    model = FakeModel(vocab_size=30, seed=seed, eos_bias=-1.0)
    sentences = random_sentences(rng, count, beam_size)
    alone = [decode_one(model, sentence) for sentence in sentences]
    order = rng.permutation(count)
    together = decode(FakeStepper(model), [sentences[i] for i in order])
    for place, i in enumerate(order):
        # Equality of floats, not closeness.
        assert together[place].hypotheses == alone[i].hypotheses
        assert together[place].peak_slots == alone[i].peak_slots


@pytest.mark.parametrize("repetition_penalty", [1.0, 1.2])
def test_a_first_step_with_one_query_a_sentence_changes_nothing(repetition_penalty: float) -> None:
    options = SearchOptions(
        beam_size=4, max_length=12, coverage_penalty=0.2, repetition_penalty=repetition_penalty
    )
    sentences = [Sentence((4 + n, EOS_ID), options, [5] * (n % 3)) for n in range(6)]
    steppers = [WatchedStepper(one_query_first=first) for first in (True, False)]
    alone, among_dead_beams = (decode(stepper, sentences) for stepper in steppers)
    assert alone == among_dead_beams
    # The whole distribution is edited beam by beam.
    assert steppers[0].queries[0] == (1 if repetition_penalty == 1.0 else 4)
    assert {*steppers[0].queries[1:], *steppers[1].queries} == {4}


class WatchedStepper(FakeStepper):
    """Notes the number of queries of each step."""

    def __init__(self, *, one_query_first: bool) -> None:
        super().__init__(FakeModel(), one_query_first=one_query_first)
        self.queries: list[int] = []

    def step(self, state: Any, inputs: StepInputs, **wanted: Any) -> StepOutputs:
        self.queries.append(inputs.token_ids_BQ.shape[1])
        return super().step(state, inputs, **wanted)


@settings(property_test, max_examples=25)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12))
@example(seed=1, count=1)
def test_cancelling_leaves_the_others_alone(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    model = FakeModel(vocab_size=30, seed=seed, eos_bias=-1.0)
    sentences = random_sentences(rng, count, beam_size=3)
    wanted = {i: decode_one(model, sentence).hypotheses for i, sentence in enumerate(sentences)}
    stepper = FakeStepper(model)
    search, found = BeamSearch(stepper, sentences), {}
    while search.live:
        for finished in search.step():
            found[finished.index] = finished.hypotheses
        victim = int(rng.integers(count))
        if search.live and victim not in found and rng.random() < 0.2:
            search.cancel(victim)
            wanted.pop(victim, None)
    assert found == wanted
    assert stepper.states[0].freed


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("from_position", [0, 3, 9])
def test_a_non_finite_score_fails_that_sentence_alone(
    from_position: int, constrained: bool
) -> None:
    bad = (6, 6, EOS_ID)
    model = FakeModel(
        vocab_size=30,
        eos_bias=-3.0,
        broken=lambda source, slots: source == bad and slots[-1][0] >= from_position,
    )
    options = SearchOptions(beam_size=4, repetition_penalty=1.2 if constrained else 1.0)
    sentences = [Sentence(source, options) for source in (SOURCE, bad, SOURCE[1:])]
    first, second, third = decode(FakeStepper(model), sentences)
    assert isinstance(second.error, DecodingError)
    assert "non-finite" in str(second.error)
    assert not second.hypotheses
    assert first.hypotheses == decode_one(model, sentences[0]).hypotheses
    assert third.hypotheses == decode_one(model, sentences[2]).hypotheses


@pytest.mark.parametrize("repetition_penalty", [1.0, 1.001])
def test_one_broken_beam_fails_the_sentence(repetition_penalty: float) -> None:
    """The beam must not merely drop out of the candidates."""
    options = SearchOptions(beam_size=4, repetition_penalty=repetition_penalty)
    best_first = FakeModel(vocab_size=30).logits(SOURCE, ((0, BOS_ID),)).argsort()[::-1]
    assert EOS_ID not in best_first[:2]
    model = FakeModel(
        vocab_size=30, broken=lambda _, slots: slots[1:] == ((1, int(best_first[1])),)
    )
    assert "non-finite" in str(decode_one(model, Sentence(SOURCE, options)).error)


def test_options_that_forbid_every_token_end_the_sentence() -> None:
    model = FakeModel(vocab_size=5, seed=2)
    options = SearchOptions(beam_size=1, no_repeat_ngram_size=1, min_length=20, max_length=30)
    assert "options leave" in str(decode_one(model, Sentence(SOURCE, options)).error)
    stepper = FakeStepper(model)
    options = replace(options, min_length=0, num_hypotheses=9, patience=9.0)
    (ended,) = decode(stepper, [Sentence(SOURCE, options)])
    assert ended.error is None
    assert 1 <= len(ended.hypotheses) <= 4
    assert stepper.calls <= 6


def test_different_beam_sizes_do_not_share_a_batch() -> None:
    sentences = [Sentence(SOURCE, SearchOptions(beam_size=size)) for size in (1, 2)]
    with pytest.raises(ValueError, match="share beam_size = 1, got 2"):
        BeamSearch(FakeStepper(FakeModel()), sentences)


def test_peak_slots_stay_near_the_length_of_the_output() -> None:
    """Beams of a real model share most of their history, so few slots stay in use."""
    wanted, beam_size = {25: 0.7, 50: 0.5, 100: 0.35}, 5
    options = SearchOptions(beam_size=beam_size, max_length=101)
    model = FakeModel(vocab_size=200, scale=2.5, eos_bias=-99.0)
    sources = [(*SOURCE[:n], n + 4, EOS_ID) for n in range(4)]
    search = BeamSearch(FakeStepper(model), [Sentence(source, options) for source in sources])
    for step in range(1, 101):
        search.step()
        if step in wanted:
            peaks = search.peak_slots
            print(f"t = {step}: {sorted(peaks.values())} of {beam_size * step} slots")
            assert sorted(peaks) == [0, 1, 2, 3]
            assert max(peaks.values()) <= wanted[step] * beam_size * step
    finished = search.step()
    assert {f.index for f in finished} == {0, 1, 2, 3}
    assert all(f.peak_slots >= peaks[f.index] for f in finished)
    assert search.peak_slots == {}
    assert max(f.peak_slots for f in finished) < 250


def run_joining(
    search: BeamSearch, waiting: list[Sentence], generator: np.random.Generator
) -> dict[int, Finished]:
    """Results by number, while sentences join a few at a time."""
    found: dict[int, Finished] = {}
    while search.live or waiting:
        if waiting and (not search.live or generator.random() < 0.3):
            count = int(generator.integers(1, 4))
            search.add(waiting[:count])
            del waiting[:count]
        found |= {finished.index: finished for finished in search.step()}
    return found


@property_test
@given(seed=st.integers(0, 10**6), count=st.integers(2, 9), beam_size=st.sampled_from([1, 2, 3, 5]))
def test_sentences_that_join_later_come_out_as_alone(seed: int, count: int, beam_size: int) -> None:
    generator, model = np.random.default_rng(seed), FakeModel(vocab_size=9, seed=seed)
    sentences = []
    for number in range(count):
        options = SearchOptions(
            beam_size=beam_size,
            num_hypotheses=beam_size,
            max_length=int(generator.integers(2, 14)),
            coverage_penalty=float(generator.choice([0.0, 0.3])),
            no_repeat_ngram_size=int(generator.choice([0, 0, 2])),
            loop_guard=False,
        )
        source = [*generator.integers(4, 9, 1 + number % 5).tolist(), EOS_ID]
        prefix = generator.integers(4, 9, int(generator.choice([0, 0, 3, 11]))).tolist()
        sentences.append(Sentence(source, options, prefix))
    stepper = FakeStepper(model)
    found = run_joining(BeamSearch(stepper, sentences[:1]), sentences[1:], generator)
    alone = [decode_one(model, sentence).hypotheses for sentence in sentences]
    assert [found[number].hypotheses for number in range(count)] == alone
    assert all(state.freed for state in stepper.states)
