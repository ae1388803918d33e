"""Batches by length, and several workers at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.batches import (
    MAX_BATCH_ROWS,
    MAX_BATCH_TOKENS,
    batch_by_length,
    decode_in_batches,
)
from serving.options import SearchOptions
from serving.search import Sentence
from serving.tokenizer import EOS_ID
from tests.unit.serving.fake_stepper import FakeModel, FakeStepper

property_test = settings(max_examples=200, deadline=None, derandomize=True)


@property_test
@given(
    st.lists(st.tuples(st.integers(1, 900), st.sampled_from([1, 5])), max_size=120),
)
def test_batches_hold_every_sentence_once_within_the_limits(shapes: list[tuple[int, int]]) -> None:
    sentences = {
        index: Sentence(np.zeros(length).tolist(), SearchOptions(beam_size=beam_size))
        for index, (length, beam_size) in enumerate(shapes)
    }
    batches = batch_by_length(sentences)
    assert sorted(index for batch in batches for index in batch) == list(range(len(shapes)))
    for batch in batches:
        assert len({shapes[index][1] for index in batch}) == 1
        assert len(batch) <= MAX_BATCH_ROWS
        longest = max(shapes[index][0] for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= MAX_BATCH_TOKENS


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
    sentences = {i: Sentence([4, EOS_ID]) for i in range(8)}
    assert [len(batch) for batch in batch_by_length(sentences, 4)] == [4, 4]
