"""What each protocol scores, and after which context."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.ids import EOS_ID
from tests.unit.training.tiny_language import tiny_lm
from training.batches.segments import join_documents
from training.results.perplexity import (
    Window,
    bptt_windows,
    rolling_windows,
    score_windows,
    sliding_windows,
)

documents_ = st.lists(st.lists(st.integers(4, 36), max_size=25), max_size=12)


def scored(windows: list[Window]) -> list[int]:
    return [int(i) for tokens, count in windows for i in tokens[len(tokens) - count :]]


@settings(max_examples=60, deadline=None)
@given(documents=documents_, length=st.integers(2, 20))
def test_sliding_scores_each_token_once_after_half_a_window(
    documents: list[list[int]], length: int
) -> None:
    windows = sliding_windows(documents, length)
    assert scored(windows) == join_documents(documents).tolist()
    for tokens, _ in windows:
        assert len(tokens) - 1 <= length
    for tokens, count in windows[1:]:
        assert len(tokens) - count >= length / 2


def lm_eval_windows(
    token_list: list[int], prefix_token: int, max_seq_len: int
) -> list[tuple[list[int], list[int]]]:
    """(input, labels) of lm-eval's get_rolling_token_windows with context_len 1, as documented."""
    first = min(max_seq_len, len(token_list))
    pairs = [([prefix_token, *token_list[: first - 1]], token_list[:first])]
    predicted = first
    while predicted < len(token_list):
        count = min(len(token_list) - predicted, max_seq_len)
        end = predicted + count
        pairs.append(
            (token_list[max(0, end - max_seq_len - 1) : end - 1], token_list[end - count : end])
        )
        predicted += count
    return pairs  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(4, 36), min_size=1, max_size=60), length=st.integers(2, 20))
def test_rolling_windows_are_those_of_lm_eval(ids: list[int], length: int) -> None:
    windows = rolling_windows([ids], length)
    found = [
        (w.tokens[:-1].tolist(), w.tokens[len(w.tokens) - w.scored :].tolist()) for w in windows
    ]
    expected = lm_eval_windows(ids, EOS_ID, length)
    for (tokens, labels), (wanted_tokens, wanted_labels) in zip(found, expected, strict=True):
        assert labels == wanted_labels
        assert tokens == wanted_tokens


def test_rolling_scores_documents_apart_and_no_eos() -> None:
    windows = rolling_windows([[5, 6, 7], [], [8]], 2)
    assert [(w.tokens.tolist(), w.scored) for w in windows] == [
        ([EOS_ID, 5, 6], 2),
        ([5, 6, 7], 1),
        ([EOS_ID, 8], 1),
    ]


def test_bptt_cuts_twenty_columns_every_seventy_tokens() -> None:
    documents = [[4 + n % 30 for n in range(20 * 100)]]  # an eos is over
    windows = bptt_windows(documents)
    assert [(len(w.tokens), w.scored) for w in windows] == [(71, 70)] * 20 + [(30, 29)] * 20


@pytest.mark.parametrize("cut", [bptt_windows, sliding_windows, rolling_windows])
def test_scores_are_those_of_each_window_alone(
    cut: Callable[[list[list[int]], int], list[Window]],
) -> None:
    model = tiny_lm(attention="cascade")
    documents = [[int(i) for i in torch.randint(4, 37, (n,))] for n in (60, 3, 17, 1)]
    windows = cut(documents, 8)
    total = 0.0
    for tokens, count in windows:
        ids = torch.from_numpy(tokens.astype("int64"))
        log_probs = model(ids[None, :-1])[0].detach().double().log_softmax(-1)
        labels = ids[1:]
        losses = -log_probs.gather(1, labels[:, None])[:, 0]
        total += float(losses[len(losses) - count :].sum())
    assert score_windows(model, windows) == pytest.approx(total, rel=1e-5)
    assert math.isfinite(total)
