"""Batches by length, within the limits, and several workers at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.queue.limits import BatchLimits, Demand
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import Group, SearchOptions
from serving.translation.offline import decode_in_batches, fill_batches, share_out
from serving.translation.texts import demand
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper

property_test = settings(max_examples=200, deadline=None, derandomize=True)


def batches_of(sentences: dict[int, Sentence], limits: BatchLimits) -> list[list[int]]:
    stepper = FakeStepper(FakeModel())
    demands = {key: demand(sentence, stepper) for key, sentence in sentences.items()}
    return fill_batches(demands, stepper, limits)


@property_test
@given(
    st.lists(st.tuples(st.integers(1, 900), st.sampled_from([1, 5])), max_size=120),
    st.integers(1, 40),
    st.integers(1, 2000),
    st.integers(1, 3_000_000),
)
def test_batches_hold_every_sentence_once_within_the_limits(
    shapes: list[tuple[int, int]], max_rows: int, max_tokens: int, max_cache_bytes: int
) -> None:
    sentences = {
        index: Sentence(np.zeros(length).tolist(), SearchOptions(beam_size=beam_size))
        for index, (length, beam_size) in enumerate(shapes)
    }
    limits = BatchLimits(max_rows=max_rows, max_tokens=max_tokens, max_cache_bytes=max_cache_bytes)
    batches = batches_of(sentences, limits)
    assert sorted(index for batch in batches for index in batch) == list(range(len(shapes)))
    stepper = FakeStepper(FakeModel())
    for batch in batches:
        assert len({shapes[index][1] for index in batch}) == 1
        longest = max(shapes[index][0] for index in batch)
        slots = max(demand(sentences[index], stepper).slots for index in batch)
        assert len(batch) == 1 or (
            len(batch) <= max_rows
            and len(batch) * longest <= max_tokens
            and len(batch) * longest * slots <= max_cache_bytes  # FakeStepper's bytes
        )


@pytest.mark.parametrize("count", [1, 2, 7, 90])
def test_workers_change_no_result(count: int) -> None:
    generator = np.random.default_rng(1)
    options = SearchOptions(beam_size=3, max_length=12)
    sentences = {
        10 * i: Sentence([*generator.integers(4, 9, 1 + i % 9).tolist(), EOS_ID], options)
        for i in range(count)
    }
    alone = dict(decode_in_batches(FakeStepper(FakeModel()), sentences))
    together = dict(decode_in_batches(FakeStepper(FakeModel()), sentences, workers=3))
    assert alone.keys() == together.keys() == sentences.keys()
    assert all(alone[key].hypotheses == together[key].hypotheses for key in sentences)


def test_few_sentences_are_spread_over_the_workers() -> None:
    stepper = FakeStepper(FakeModel())
    sentences = {i: Sentence([4, EOS_ID], SearchOptions(beam_size=2)) for i in range(8)}
    list(decode_in_batches(stepper, sentences, workers=2))
    assert [len(state.sources) for state in stepper.states] == [4, 4]


@property_test
@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 6))
def test_shares_are_of_like_length_and_equal_in_ids(lengths: list[int], workers: int) -> None:
    demands = {
        key: Demand(Group(5, shortlisted=False), source_length=length, slots=8)
        for key, length in enumerate(lengths)
    }
    shares = share_out(demands, workers)
    assert len(shares) == workers
    assert sorted(key for share in shares for key in share) == list(range(len(lengths)))
    in_order = [demand.source_length for share in shares for demand in share.values()]
    assert in_order == sorted(lengths)
    for share in shares:
        ids = sum(demand.source_length for demand in share.values())
        assert abs(ids - sum(lengths) / workers) <= max(lengths, default=0)


def test_workers_share_the_cache_budget() -> None:
    sentences = {i: Sentence([4, EOS_ID], SearchOptions(beam_size=2)) for i in range(8)}
    stepper = FakeStepper(FakeModel())
    row = stepper.cache_bytes(1, 2, demand(sentences[0], stepper).slots)
    limits = BatchLimits(max_cache_bytes=4 * row)
    list(decode_in_batches(stepper, sentences, 2, limits))
    assert [len(state.sources) for state in stepper.states] == [2, 2, 2, 2]


def test_a_joint_model_takes_few_sentences_at_once() -> None:
    stepper = FakeStepper(FakeModel(), most_states=60)
    for beam_size, rows in ((1, 20), (5, 4), (40, 1)):
        options = SearchOptions(beam_size=beam_size)
        sentences = {i: Sentence([4, 5, EOS_ID], options) for i in range(21)}
        demands = {key: demand(sentence, stepper) for key, sentence in sentences.items()}
        batches = fill_batches(demands, stepper, BatchLimits())
        assert len(batches[0]) == rows
