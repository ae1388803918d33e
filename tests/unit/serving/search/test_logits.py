"""Edits of logits, log-softmax and the best continuations, each against a slow loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.search.ids import EOS_ID
from serving.search.logits import (
    best_continuations,
    forbid_ends,
    forbid_repeated_ngrams,
    log_softmax,
    penalise_repetition,
)

VOCABULARY = 9
property_test = settings(max_examples=200, deadline=None, derandomize=True)
histories = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


def random_logits(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@property_test
@given(seed=st.integers(0, 999), history=histories, size=st.integers(1, 6))
def test_no_ngram_occurs_twice(seed: int, history: list[int], size: int) -> None:
    logits = random_logits(seed, VOCABULARY)
    wanted = logits.copy()
    ngrams = [history[i : i + size] for i in range(len(history) - size + 1)]
    for token in range(VOCABULARY):
        if [*history, token][-size:] in ngrams:
            wanted[token] = -np.inf
    forbid_repeated_ngrams(logits, history, size)
    np.testing.assert_array_equal(logits, wanted)


@property_test
@given(seed=st.integers(0, 999), history=histories, penalty=st.sampled_from([0.5, 1.0, 1.7]))
def test_repetition_penalty_counts_each_token_once(
    seed: int, history: list[int], penalty: float
) -> None:
    logits = random_logits(seed, VOCABULARY)
    wanted = [
        value if token not in history else value / penalty if value > 0 else value * penalty
        for token, value in enumerate(logits.tolist())
    ]
    penalise_repetition(logits, history, penalty)
    np.testing.assert_allclose(logits, wanted, rtol=1e-6)


def test_forbid_ends() -> None:
    logits = random_logits(0, VOCABULARY)
    forbid_ends(logits, [EOS_ID])
    assert np.flatnonzero(np.isinf(logits)).tolist() == [EOS_ID]


def test_log_softmax_of_partly_and_wholly_forbidden_rows() -> None:
    logits = random_logits(1, 3, VOCABULARY) * 30
    logits[1, 2:] = -np.inf
    logits[2] = -np.inf
    found = log_softmax(logits)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), [1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(found[0, 1] - found[0, 0], logits[0, 1] - logits[0, 0], rtol=1e-5)
    assert (found[2] == -np.inf).all()


@property_test
@given(
    seed=st.integers(0, 999),
    beams=st.integers(1, 5),
    vocabulary=st.sampled_from([9, 64, 777]),
    count=st.integers(1, 60),
    levels=st.sampled_from([2, 5, 1000]),
)
def test_best_continuations_equal_a_full_sort(
    seed: int, beams: int, vocabulary: int, count: int, levels: int
) -> None:
    """Few levels make many ties, which go to the lower beam, then to the lower token."""
    rng = np.random.default_rng(seed)
    log_probs = -rng.integers(0, levels, (beams, vocabulary)).astype(np.float32)
    log_probs[rng.random(log_probs.shape) < 0.2] = -np.inf
    scores = np.where(rng.random(beams) < 0.2, -np.inf, 0).astype(np.float32)
    wanted = sorted(
        (-(log_probs[beam, token] + scores[beam]), beam, token)
        for beam, token in itertools.product(range(beams), range(vocabulary))
    )[:count]
    found_scores, tokens, parents = best_continuations(log_probs, scores, count)
    assert [*zip((-found_scores).tolist(), parents.tolist(), tokens.tolist(), strict=True)] == (
        wanted
    )


def test_all_is_edited_in_place() -> None:
    logits = random_logits(2, VOCABULARY)
    untouched = logits.copy()
    penalise_repetition(logits, [4, 4, 5], 2.0)
    changed = np.flatnonzero(logits != untouched).tolist()
    assert changed == [4, 5]
    assert logits[4] == pytest.approx(untouched[4] / 2 if untouched[4] > 0 else untouched[4] * 2)
