"""The rows of a running batch and their beams. Sentences take idle rows and leave theirs idle.

Shape letters: B rows, K beams, Q queries, N candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from serving.arrays import Bools, Floats, Int32s, Ints
from serving.search.beams.sentence_search import SentenceSearch, Step
from serving.search.logits import Best
from serving.search.prefix_tree import PrefixTree, Repack, fill_rows
from serving.search.stepper import BeamArrays, BoundSteps, StepInputs, Stepper

MOST_STEPS = 64
"""Most bound steps that are recorded together, and so taken in one call."""

RowCandidates = tuple[list[float], list[int], list[int]]
"""Scores, tokens and parents of the candidates of one row, best first."""


class Candidates(NamedTuple):
    """The best continuations of each row, best first: cumulative score, token and parent beam."""

    scores_BN: Floats
    tokens_BN: Int32s
    parents_BN: Int32s

    def copy(self) -> Candidates:
        """A copy that may be edited; the candidates of a stepper are its own buffers."""
        return Candidates(self.scores_BN.copy(), self.tokens_BN.copy(), self.parents_BN.copy())

    def replace(self, row: int, best: Best) -> None:
        """Replace a row's candidates. If there are fewer, the rest gets -inf."""
        for target_BN, values, filler in zip(self, best, (-np.inf, 0, 0), strict=True):
            target_BN[row, : len(values)] = values
            target_BN[row, len(values) :] = filler

    def of(self, row: int) -> RowCandidates:
        """The candidates of a row as plain lists."""
        scores, tokens, parents = self
        return scores[row].tolist(), tokens[row].tolist(), parents[row].tolist()


class NextBeams(NamedTuple):
    """The beams of the next step: the token of each, the beam that it continues and its cumulative
    score, which is -inf for a dead beam. Dead beams may stand between live ones."""

    tokens_BK: Int32s
    parents_BK: Int32s
    scores_BK: Floats

    @staticmethod
    def best(candidates: Candidates, beam_size: int) -> NextBeams:
        """The best candidates of each row in order. They are its beams unless one of them ends."""
        return NextBeams(
            candidates.tokens_BN[:, :beam_size].copy(),
            candidates.parents_BN[:, :beam_size].copy(),
            candidates.scores_BN[:, :beam_size].copy(),
        )

    def choose(self, row: int, candidates: RowCandidates, chosen: Sequence[int]) -> None:
        """Give these candidates to the beams of a row instead. -1 makes a beam dead; at least one
        must live."""
        scores, tokens, parents = candidates
        self.tokens_BK[row] = [tokens[place] if place >= 0 else 0 for place in chosen]
        self.parents_BK[row] = [parents[max(place, 0)] for place in chosen]
        self.scores_BK[row] = [scores[place] if place >= 0 else -math.inf for place in chosen]

    def steps(self) -> Iterator[Step]:
        """The beams of each row as plain lists."""
        yield from zip(*(array.tolist() for array in self), strict=True)

    def queries(self) -> Ints:
        """Beams of each row up to the last live one; 0 if none lives."""
        live_BK = self.scores_BK > -np.inf
        last_B: Ints = live_BK.shape[1] - live_BK[:, ::-1].argmax(axis=1)
        return np.where(live_BK.any(axis=1), last_B, 0)


class Rows:
    """The rows of a running batch. Each has a sentence's search, the beams of its next step and its
    part of the prefix tree.

    Only this class adds, drops and moves rows, so all arrays have the same rows in the same order.
    An idle row has no live beam; its old search stays until another replaces it.
    """

    searches: list[SentenceSearch]
    num_live: int
    """Rows whose sentence is being decoded."""
    running_B: Bools
    """Whether a row's sentence is being decoded; the row is idle if not."""
    source_lengths_B: Ints
    steps_left_B: Ints
    queries_B: Ints
    """Beams up to the last live one."""
    tokens_BK: Ints
    """The token that each beam feeds into the next step."""
    positions_BK: Ints
    """The position of that token."""
    scores_BK: Floats
    """Cumulative log-probabilities, -inf for a dead beam."""
    tree: PrefixTree

    def __init__(self, searches: Sequence[SentenceSearch], stepper: Stepper) -> None:
        """Rows for new sentences of one beam size, with one live beam each.

        The stepper's caches contain their prefixes without the last token, which goes through the
        first step.
        """
        sentences = [search.sentence for search in searches]
        last = [[sentence.start, *sentence.target_prefix][-1] for sentence in sentences]
        lengths, steps = [len(s.source) for s in sentences], [s.max_steps for s in sentences]
        count, beam_size = len(sentences), searches[0].options.beam_size
        prefixes = [len(sentence.target_prefix) for sentence in sentences]
        self._any_attended = any(search.attended for search in searches)
        self._any_constrained = any(search.constrains for search in searches)
        tree = PrefixTree(
            np.array(prefixes, dtype=np.int64),
            beam_size,
            stepper.repack_every,
            reach=stepper.reach,
            lookback=stepper.lookback,
            spare=stepper.spare_slots,
        )
        self.searches, self.num_live, self.tree = list(searches), count, tree
        self.running_B = np.ones(count, dtype=np.bool_)
        self.source_lengths_B = np.array(lengths, dtype=np.int64)
        self.steps_left_B = np.array(steps, dtype=np.int64)
        self.queries_B = np.ones(count, dtype=np.int64)
        self.tokens_BK = np.repeat(np.array(last, dtype=np.int64)[:, None], beam_size, axis=1)
        self.positions_BK = np.repeat(tree.next_positions[:, None], beam_size, axis=1)
        self.scores_BK = np.full((count, beam_size), -np.inf, dtype=np.float32)
        self.scores_BK[:, 0] = 0.0
        self._kept = 0
        """Steps that the bound steps have recorded and the searches have not yet."""

    def __len__(self) -> int:
        """Number of rows, including idle ones."""
        return len(self.searches)

    @property
    def begun(self) -> bool:
        """Whether any row has done a step; until then only first beams are live."""
        return self.tree.num_steps > 0

    @property
    def longest_source(self) -> int:
        """Number of ids of the longest source being decoded; there must be one."""
        return int(self.source_lengths_B[self.running_B].max())

    def idle(self, count: int) -> Ints:
        """The first idle rows, at most this many."""
        return np.flatnonzero(~self.running_B)[:count]

    def constrained(self) -> list[int]:
        """Rows whose next step needs the whole distribution."""
        if not self._any_constrained:
            return []
        live = np.flatnonzero(self.running_B).tolist()
        return [row for row in live if self.searches[row].constrained]

    def attended(self) -> list[int]:
        """Rows whose next step needs the attention to the source."""
        if not self._any_attended:
            return []
        live = np.flatnonzero(self.running_B).tolist()
        return [row for row in live if self.searches[row].attended]

    def inputs(self, queries: int) -> StepInputs:
        """The inputs of the next step for the first `queries` beams of each row. Each beam gets its
        cache slot in the tree."""
        return StepInputs(
            token_ids_BQ=self.tokens_BK[:, :queries],
            positions_BQ=self.positions_BK[:, :queries],
            write_index_B=self.tree.write(),
            visible_BQC=self.tree.visible[:, :queries],
            scores_BK=self.scores_BK,
            slot_positions_BC=self.tree.slot_positions,
            ancestors_BQW=self.tree.query_ancestors(queries),
        )

    def arrays(self) -> BeamArrays:
        """The arrays that bound steps read and write, as long as `layout` stays."""
        self.note()
        shape = (MOST_STEPS, *self.tokens_BK.shape)
        tree, ends = self.tree, [search.ends for search in self.searches]
        self._kept_SBK = (
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.float32),
        )
        return BeamArrays(
            self.tokens_BK,
            self.positions_BK,
            self.scores_BK,
            self.queries_B,
            self.steps_left_B,
            self.running_B,
            *tree.arrays,
            tree.repack_every,
            tree.reach,
            ends,
            self._kept_SBK,
        )

    def go_on(self, bound: BoundSteps, most: int) -> bool:
        """Run up to `most` bound steps, until dead slots are to be dropped or the beams recorded.
        If something happens in a row before, the last run's candidates wait, and the result is
        False."""
        most = min(most, MOST_STEPS - self._kept, self.tree.steps_left)
        gone, waiting = bound.go_on(self._kept, max(most, 1))
        self.tree.went_on(gone)
        self._kept += gone
        if self._kept == MOST_STEPS:
            self.note()
        return not waiting

    def note(self) -> None:
        """Give the searches the steps that the bound steps have recorded."""
        if not self._kept:
            return
        tokens, parents, scores = (each[: self._kept].tolist() for each in self._kept_SBK)
        for step in zip(tokens, parents, scores, strict=True):
            for search, *beams in zip(self.searches, *step, strict=True):
                search.steps.append(tuple(beams))
        self._kept = 0

    def choose(self, bound: BoundSteps) -> tuple[list[int], NextBeams] | None:
        """Begin the bound steps' waiting step. Returns the rows in which something happens, and the
        beams as they are recorded, which may be changed before `move`. None, without any change, if
        a candidate continues what is no beam."""
        self.note()
        eventful = bound.choose(0)
        if eventful is None:
            return None
        tokens, parents, scores = (each[0] for each in self._kept_SBK)
        return eventful, NextBeams(tokens, parents, scores)

    def move(self, bound: BoundSteps) -> None:
        """Continue with the beams that `choose` returned."""
        bound.move(0)
        self.tree.went_on(1)
        self._kept = 1

    def advance(self, beams: NextBeams) -> None:
        """Continue with these beams in the running rows."""
        self.note()
        queries_B = beams.queries()
        if self.num_live < len(self.searches):
            idle_B = ~self.running_B
            beams.tokens_BK[idle_B], queries_B[idle_B] = 0, 0
            beams.scores_BK[idle_B] = -np.inf
        self.tree.advance(beams.parents_BK, self.queries_B)
        self.tokens_BK, self.scores_BK = beams.tokens_BK.astype(np.int64), beams.scores_BK
        self.queries_B = queries_B
        self.positions_BK = self.positions_BK + self.running_B[:, None]
        for search, step in zip(self.searches, beams.steps(), strict=True):
            search.steps.append(step)

    def fill(self, others: Rows, idle: Ints) -> None:
        """Add other rows: the first into these idle rows, the rest at the end. They must have the
        same beam size, and must not be used afterwards."""
        self.note()
        for row, search in zip(idle.tolist(), others.searches, strict=False):
            self.searches[row] = search
        self.searches += others.searches[len(idle) :]
        self.num_live += others.num_live
        self.running_B = fill_rows(self.running_B, others.running_B, idle)
        self.source_lengths_B = fill_rows(self.source_lengths_B, others.source_lengths_B, idle)
        self.steps_left_B = fill_rows(self.steps_left_B, others.steps_left_B, idle)
        self.queries_B = fill_rows(self.queries_B, others.queries_B, idle)
        self.tokens_BK = fill_rows(self.tokens_BK, others.tokens_BK, idle)
        self.positions_BK = fill_rows(self.positions_BK, others.positions_BK, idle)
        self.scores_BK = fill_rows(self.scores_BK, others.scores_BK, idle)
        self.tree.extend(others.tree, idle)
        self._any_attended |= others._any_attended
        self._any_constrained |= others._any_constrained

    def retire(self, row: int) -> int:
        """Make a running row idle; returns the most cache slots that its sentence used."""
        self.num_live -= 1
        self.running_B[row] = False
        self.source_lengths_B[row] = self.steps_left_B[row] = self.queries_B[row] = 0
        self.tokens_BK[row] = self.positions_BK[row] = 0
        self.scores_BK[row] = -np.inf
        return self.tree.clear(row)

    def repack(self, bound: BoundSteps | None = None) -> Repack | None:
        """Drop dead cache slots if that is due, and idle rows if more than a quarter are idle.

        Returns the change for the model's caches, or None if nothing changes or if the bound steps
        have already made it.
        """
        count = len(self.searches)
        if (count - self.num_live) * 4 > count:
            return self.take(np.flatnonzero(self.running_B))
        if not self.tree.due or (bound and self.tree.repack_bound(bound)):
            return None
        return self.take(np.arange(count))

    def take(self, rows: Ints) -> Repack | None:
        """Keep these rows in order, without their dead cache slots if it is due to drop them; the
        result is that of `repack`."""
        repack = self.tree.repack(rows)
        if len(rows) < len(self.searches):
            self.note()
            self.searches = [self.searches[row] for row in rows]
            self.running_B = self.running_B[rows]
            self.num_live = int(self.running_B.sum())
            self.source_lengths_B = self.source_lengths_B[rows]
            self.steps_left_B, self.queries_B = self.steps_left_B[rows], self.queries_B[rows]
            self.tokens_BK, self.scores_BK = self.tokens_BK[rows], self.scores_BK[rows]
            self.positions_BK = self.positions_BK[rows]
        return repack
