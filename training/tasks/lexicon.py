"""A lexicon of a parallel corpus: the probability of each target piece given a source piece.

Shape letters: L links between a source and a target piece of one sentence pair, P pairs of pieces
that occur in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.arrays import Doubles, Ints
from serving.search.ids import PAD_ID

MAX_LINKS = 20_000_000
"""Sentence pairs beyond are left out, evenly; training takes about 100 bytes a link."""
_ITERATIONS = 5
_EMPTY_WORD = 0.08
"""Probability of the empty word, as chosen by Dyer et al."""

IdPair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Lexicon:
    """Translation probabilities, sorted by source piece, likeliest first."""

    source_P: Ints
    target_P: Ints
    probability_P: Doubles
    """Probability of the target piece given the source piece; those of one source piece sum to
    1."""

    @property
    def links(self) -> Ints:
        """Each pair as `links_of` numbers it, [P]."""
        return (self.source_P << 32) + self.target_P


def learn_lexicon(pairs: Sequence[IdPair], tension: float | None = None) -> Lexicon:
    """IBM model 1 (Brown et al. 1993, section 4.2), five rounds of expectation maximisation.

    Target pieces that no source piece explains go to the empty word, whose id is that of padding.
    With a `tension`, links near the diagonal are likelier (`diagonal_prior`).
    """
    pairs = _thin_out(pairs)
    key_L, word_L = _links(pairs)
    prior_L = _priors(pairs, tension)
    key_P, pair_L = np.unique(key_L, return_inverse=True)
    source_P, target_P = key_P >> 32, key_P & 0xFFFFFFFF
    probability_P = np.ones(len(key_P))
    for _ in range(_ITERATIONS):
        weight_L = probability_P[pair_L] * prior_L
        weight_L /= np.bincount(word_L, weight_L)[word_L]
        count_P = np.bincount(pair_L, weight_L)
        probability_P = count_P / np.bincount(source_P, count_P)[source_P]
    order = np.lexsort((target_P, -probability_P, source_P))
    return Lexicon(source_P[order], target_P[order], probability_P[order])


def links_of(source: Sequence[int], target: Sequence[int]) -> Ints:
    """A number for each possible link, [T, 1 + S]: it holds both pieces, the source piece in its
    upper half. The empty word comes first."""
    source_1X = np.array([[PAD_ID, *source]], dtype=np.int64)
    links_TX: Ints = (source_1X << 32) + np.array(target, dtype=np.int64)[:, None]
    return links_TX


def turned(pairs: Sequence[IdPair]) -> list[IdPair]:
    """Each pair with source and target in each other's place."""
    return [(target, source) for source, target in pairs]


def diagonal_prior(source_length: int, target_length: int, tension: float) -> Doubles:
    """The prior probability that a target position comes from the empty word or from a source
    position, [T, 1 + S], before its piece is known (Dyer et al. 2013, equation 1).

    The empty word has a fixed share; the other shares fall off with the distance from the diagonal.
    """
    target_T1 = (np.arange(target_length) + 0.5)[:, None] / target_length
    source_1S = (np.arange(source_length) + 0.5)[None] / source_length
    near_TS = np.exp(-tension * np.abs(target_T1 - source_1S))
    near_TS *= (1 - _EMPTY_WORD) / near_TS.sum(axis=1, keepdims=True).clip(min=1e-9)
    return np.concatenate([np.full((target_length, 1), _EMPTY_WORD), near_TS], axis=1)


def _priors(pairs: Sequence[IdPair], tension: float | None) -> Doubles | float:
    if tension is None:
        return 1.0
    made = [diagonal_prior(len(source), len(target), tension).ravel() for source, target in pairs]
    return np.concatenate([*made, np.zeros(0)])


def _thin_out(pairs: Sequence[IdPair]) -> Sequence[IdPair]:
    """Every n-th pair, so that the links stay within their limit."""
    links = sum((len(source) + 1) * len(target) for source, target in pairs)
    return pairs[:: -(-links // MAX_LINKS)] if links else []


def _links(pairs: Sequence[IdPair]) -> tuple[Ints, Ints]:
    """The numbers of all links (`links_of`), and the place of each one's target piece in the
    corpus."""
    keys, words, start = [], [], 0
    for source, target in pairs:
        keys.append(links_of(source, target).ravel())
        words.append(np.repeat(np.arange(start, start + len(target)), 1 + len(source)))
        start += len(target)
    nothing = [np.zeros(0, dtype=np.int64)]
    return np.concatenate(keys or nothing), np.concatenate(words or nothing)
