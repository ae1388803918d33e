"""The candidates of a step, and the beams that are chosen from them.

Shape letters: B rows, K beams, N candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from serving.arrays import Floats, Int32s, Ints
from serving.search.logits import Best
from serving.search.sentence_search import Step

RowCandidates = tuple[list[float], list[int], list[int]]
"""Scores, tokens and parents of the candidates of one row, best first."""


class Candidates(NamedTuple):
    """The best continuations of each row, best first: cumulative score, token and parent beam."""

    scores_BN: Floats
    tokens_BN: Int32s
    parents_BN: Int32s

    def copy(self) -> Candidates:
        """Candidates that may be edited; those of a stepper are buffers of its own."""
        return Candidates(self.scores_BN.copy(), self.tokens_BN.copy(), self.parents_BN.copy())

    def replace(self, row: int, best: Best) -> None:
        """Put these in the place of a row's candidates; where they are fewer, -inf fills up."""
        for target_BN, values, filler in zip(self, best, (-np.inf, 0, 0), strict=True):
            target_BN[row, : len(values)] = values
            target_BN[row, len(values) :] = filler

    def by_row(self) -> list[RowCandidates]:
        """The candidates of each row as plain lists."""
        return list(zip(*(array.tolist() for array in self), strict=True))


@dataclass
class NextBeams:
    """The beams of the next step: the token that each takes, the beam that it continues and its
    cumulative score, -inf where it is dead."""

    tokens_BK: Ints
    parents_BK: Int32s
    scores_BK: Floats
    queries_B: Ints
    """Beams of each row up to the last live one. Dead beams may stand between live ones."""
    steps: list[Step]
    """The same by row, as plain lists."""

    @staticmethod
    def best(candidates: Candidates, by_row: Sequence[RowCandidates], beam_size: int) -> NextBeams:
        """The best candidates of each row as they come, which are its beams unless one of them
        ends. `by_row` are the same candidates as lists."""
        return NextBeams(
            candidates.tokens_BN[:, :beam_size].astype(np.int64),
            candidates.parents_BN[:, :beam_size].copy(),
            candidates.scores_BN[:, :beam_size].copy(),
            np.full(len(by_row), beam_size, dtype=np.int64),
            [(t[:beam_size], p[:beam_size], s[:beam_size]) for s, t, p in by_row],
        )

    def choose(self, row: int, candidates: RowCandidates, chosen: Sequence[int]) -> None:
        """Give the beams of a row these of its candidates instead; -1 leaves a beam dead, as it
        must not all."""
        scores, tokens, parents = candidates
        self.steps[row] = next_tokens, next_parents, next_scores = (
            [tokens[place] if place >= 0 else 0 for place in chosen],
            [parents[max(place, 0)] for place in chosen],
            [scores[place] if place >= 0 else -math.inf for place in chosen],
        )
        self.tokens_BK[row], self.parents_BK[row] = next_tokens, next_parents
        self.scores_BK[row] = next_scores
        self.queries_B[row] = [beam for beam, place in enumerate(chosen) if place >= 0][-1] + 1
