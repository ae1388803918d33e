"""Rows of a language model's text: what each epoch holds, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.ids import EOS_ID
from training.batches.segments import TextCorpus, cut_columns, join_documents

documents_ = st.lists(st.lists(st.integers(4, 99), max_size=12), min_size=1, max_size=30)


def corpus(documents: list[list[int]], batching: str = "columns", seed: int = 1) -> TextCorpus:
    return TextCorpus(documents, batching=batching, batch_size=3, segment_length=5, seed=seed)


def test_documents_are_joined_with_an_eos_after_each() -> None:
    assert join_documents([[7, 8], [], [9]]).tolist() == [7, 8, EOS_ID, EOS_ID, 9, EOS_ID]


def test_columns_are_contiguous_and_drop_the_remainder() -> None:
    stream = np.arange(27, dtype=np.int32)  # two columns of 13, one token over
    segments = cut_columns(stream, 2, 5)
    assert [segment.tolist() for segment in segments] == [
        [[0, 1, 2, 3, 4, 5], [13, 14, 15, 16, 17, 18]],
        [[5, 6, 7, 8, 9, 10], [18, 19, 20, 21, 22, 23]],
        [[10, 11, 12], [23, 24, 25]],  # the last may be shorter
    ]


@settings(max_examples=60, deadline=None)
@given(length=st.integers(0, 300), batch_size=st.integers(1, 20), segment_length=st.integers(1, 70))
def test_columns_predict_all_but_the_first_token_of_each_once(
    length: int, batch_size: int, segment_length: int
) -> None:
    stream = np.arange(length, dtype=np.int32)
    segments = cut_columns(stream, batch_size, segment_length)
    labels = [label for segment in segments for label in segment[:, 1:].flatten().tolist()]
    column = length // batch_size
    expected = [row * column + t for row in range(batch_size) for t in range(1, column)]
    assert sorted(labels) == expected
    for segment in segments:
        assert segment.shape[0] == batch_size
        assert 2 <= segment.shape[1] <= segment_length + 1


@settings(max_examples=60, deadline=None)
@given(documents=documents_, epoch=st.integers(0, 3))
def test_packed_rows_are_full_and_hold_each_token_at_most_once(
    documents: list[list[int]], epoch: int
) -> None:
    batches = corpus(documents, "documents").epoch(epoch)
    rows = [row for batch in batches for row in batch]
    assert all(len(row) == 6 for row in rows)
    assert all(len(batch) == 3 for batch in batches[:-1])
    text = Counter(join_documents(documents).tolist())
    found = Counter(label for row in rows for label in row[1:].tolist())
    assert found <= text
    assert text.total() - found.total() < 5  # less than a row is left out
    for row, following in pairwise(rows):
        assert row[-1] == following[0]


def test_packing_takes_whole_documents_in_another_order_each_epoch() -> None:
    documents = [[n] * 4 for n in range(10, 40)]  # with its eos, a document fills a row
    packed = corpus(documents, "documents")
    orders = [[int(row[1]) for batch in packed.epoch(epoch) for row in batch] for epoch in range(2)]
    assert sorted(orders[0]) == list(range(10, 40))
    assert orders[0] != orders[1]
    again = corpus(documents, "documents")
    assert [int(row[1]) for batch in again.epoch(1) for row in batch] == orders[1]
    other = corpus(documents, "documents", seed=2)
    assert [int(row[1]) for batch in other.epoch(0) for row in batch] != orders[0]


def test_columns_are_the_same_in_every_epoch() -> None:
    some = corpus([[n] * 4 for n in range(10, 40)])
    for one, other in zip(some.epoch(0), some.epoch(3), strict=True):
        assert np.array_equal(one, other)


def test_the_digest_tells_texts_apart() -> None:
    assert corpus([[4, 5], [6]]).digest == corpus([[4, 5], [6]], "documents", seed=9).digest
    assert corpus([[4, 5], [6]]).digest != corpus([[4], [5, 6]]).digest
