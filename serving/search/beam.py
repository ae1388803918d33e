"""Beam search over any model behind the `Stepper` protocol; greedy search is beam_size 1.

Shape letters: B sentences, R some of them, K beams, Q queries, S source ids, V vocabulary,
N candidates.

The rules are CTranslate2's: 2K candidates a step; only an end candidate ranked among the first K
finishes a hypothesis, and the next best candidate that does not end takes its beam; a sentence
stops at round(beam_size * patience) finished hypotheses, or, without length and coverage penalty,
when its best beam is finished.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.errors import DecodingError
from serving.search.constraints import allocate
from serving.search.ids import EOS_ID
from serving.search.logits import best_continuations, log_softmax
from serving.search.prefix_tree import PrefixTree, fill_rows
from serving.search.sentence import Finished, Sentence, SentenceSearch
from serving.search.stepper import StepInputs, Stepper

_LEAST_ALONE = 4
"""Sentences whose dead beams cost more than a step of another shape does."""


class BeamSearch:
    """A running batch of sentences of one beam size; `step` while it is `live`.

    Sentences join between steps (`add`) and are numbered in the order in which they have joined.
    """

    encode_s: float
    """Seconds in the encoder for the sentences that joined last."""
    _rows: list[SentenceSearch]
    _running: NDArray[np.bool_]
    _lengths: Ints
    """Ids of each row's source."""
    _steps_left: Ints
    _queries: Ints
    """Up to the last live beam of each row."""
    _tokens: Ints
    _positions: Ints
    _scores: Floats
    _tree: PrefixTree
    _begun: bool
    """Whether any sentence of the batch has done a step."""
    _any_attended: bool
    _any_constraint: bool

    def __init__(self, stepper: Stepper, sentences: Sequence[Sentence]) -> None:
        """Begin with one sentence at least, whose beam size is the batch's; either all have a
        shortlist or none has."""
        self._stepper, self._beam_size = stepper, sentences[0].options.beam_size
        self._shortlisted = sentences[0].shortlisted
        self._joined = 0
        self._state: Any = None
        self._empty()
        self.add(sentences)

    def add(self, sentences: Sequence[Sentence]) -> list[int]:
        """Let sentences join; returns their numbers. What others find does not change by it."""
        for sentence in sentences:
            if sentence.shortlisted != self._shortlisted:
                raise ValueError("sentences with and without shortlists cannot share a batch")
            if sentence.options.beam_size != self._beam_size:
                raise ValueError(
                    f"sentences of one batch must share beam_size = {self._beam_size}, got "
                    f"{sentence.options.beam_size}"
                )
        stepper, beam_size = self._stepper, self._beam_size
        numbers = list(range(self._joined, self._joined + len(sentences)))
        self._joined += len(sentences)
        rows = [SentenceSearch(n, s) for n, s in zip(numbers, sentences, strict=True)]
        began = time.perf_counter()
        state = stepper.encode([sentence.source for sentence in sentences])
        self.encode_s = time.perf_counter() - began
        used_B = self._prefill(state, rows)
        tree = PrefixTree(used_B, beam_size, stepper.repack_every, reach=stepper.reach)
        last = [[s.start, *s.target_prefix][-1] for s in sentences]
        scores_BK = np.full((len(rows), beam_size), -np.inf, dtype=np.float32)
        scores_BK[:, 0] = 0.0
        steps = [s.max_steps for s in sentences]
        idle = np.flatnonzero(~self._running)[: len(rows)]
        if self._state is None:
            self._state, self._tree = state, tree
        else:
            stepper.extend(self._state, state, idle)
            self._tree.extend(tree, idle)
        for number, row in zip(idle.tolist(), rows, strict=False):
            self._rows[number] = row
        self._rows += rows[len(idle) :]
        tokens_BK = np.repeat(np.array(last, dtype=np.int64)[:, None], beam_size, axis=1)
        positions_BK = np.repeat(used_B[:, None], beam_size, axis=1)
        self._running = fill_rows(self._running, np.ones(len(rows), dtype=np.bool_), idle)
        lengths = np.array([len(sentence.source) for sentence in sentences], dtype=np.int64)
        self._lengths = fill_rows(self._lengths, lengths, idle)
        self._steps_left = fill_rows(self._steps_left, np.array(steps, dtype=np.int64), idle)
        self._queries = fill_rows(self._queries, np.ones(len(rows), dtype=np.int64), idle)
        self._tokens = fill_rows(self._tokens, tokens_BK, idle)
        self._positions = fill_rows(self._positions, positions_BK, idle)
        self._scores = fill_rows(self._scores, scores_BK, idle)
        self._any_attended |= any(s.attended for s in sentences)
        self._any_constraint |= any(row.constrained for row in rows)
        return numbers

    @property
    def num_live(self) -> int:
        """Sentences that are being decoded."""
        return int(self._running.sum())

    @property
    def live(self) -> bool:
        """Whether any sentence is still being decoded."""
        return bool(self._running.any())

    @property
    def peak_slots(self) -> dict[int, int]:
        """The most cache slots that each sentence in the batch has used so far, by its index."""
        if self._state is None:
            return {}
        return {row.index: int(peak) for row, peak in zip(self._rows, self._tree.peak, strict=True)}

    def agreed(self, index: int) -> list[int]:
        """Ids, prefix included, with which every hypothesis of a sentence begins that may still be
        its best."""
        number = next(n for n, row in enumerate(self._rows) if row.index == index)
        return self._rows[number].agreed(np.flatnonzero(self._scores[number] > -np.inf).tolist())

    def cancel(self, index: int) -> None:
        """Drop a sentence without a result."""
        for number, row in enumerate(self._rows):
            if row.index == index and self._running[number]:
                self._retire(number)
                if not self.live:
                    self._empty()
                return

    def step(self) -> list[Finished]:
        """Generate one token of every live sentence; returns those that are done."""
        constrained, attended = self._constrained(), self._attended()
        queries = slice(1 if self._begins_alone() and not constrained else self._beam_size)
        self._begun = True
        outputs = self._stepper.step(
            self._state,
            StepInputs(
                token_ids_BQ=self._tokens[:, queries],
                positions_BQ=self._positions[:, queries],
                write_index_B=self._tree.write(),
                visible_BQC=self._tree.visible[:, queries],
                scores_BK=self._scores,
                slot_positions_BC=self._tree.slot_positions,
            ),
            want_logits=bool(constrained),
            attention_rows=attended,
        )
        candidates = _Candidates(outputs.scores_BN, outputs.tokens_BN, outputs.parents_BN)
        if constrained:
            candidates = candidates.copy()
        for number in constrained:
            assert outputs.logits_BQV is not None
            self._constrain(number, outputs.logits_BQV[number], candidates)
        if outputs.attention_RQS is not None:
            for number, attention_KS in zip(attended, outputs.attention_RQS, strict=True):
                row = self._rows[number]
                row.attention.append(attention_KS[:, : len(row.sentence.source)].copy())
        finished = self._advance(candidates)
        self._repack()
        return finished

    def _begins_alone(self) -> bool:
        """Whether a query for each sentence is enough: before the first step all other beams are
        dead."""
        enough = len(self._rows) >= _LEAST_ALONE and self._stepper.one_query_first
        return enough and not self._begun

    def _empty(self) -> None:
        """A batch without rows."""
        beam_size = self._beam_size
        self._rows = []
        self._running = np.zeros(0, dtype=np.bool_)
        self._lengths = np.zeros(0, dtype=np.int64)
        self._steps_left = np.zeros(0, dtype=np.int64)
        self._queries = np.zeros(0, dtype=np.int64)
        self._tokens = np.zeros((0, beam_size), dtype=np.int64)
        self._positions = np.zeros((0, beam_size), dtype=np.int64)
        self._scores = np.zeros((0, beam_size), dtype=np.float32)
        self._begun = self._any_attended = self._any_constraint = False
        if self._state is not None:
            self._stepper.free(self._state)
            self._state = None

    def _prefill(self, state: Any, rows: Sequence[SentenceSearch]) -> Ints:
        """Put the start and all but the last prefix token into new caches; returns the slots used.

        The last token goes through the first ordinary step, which yields the candidates.
        """
        prefixes = [row.sentence.target_prefix for row in rows]
        longest = max(map(len, prefixes))
        if longest:
            token_ids = np.zeros((len(prefixes), longest), dtype=np.int64)
            labels = np.zeros_like(token_ids)
            for number, prefix in enumerate(prefixes):
                start = rows[number].sentence.start
                token_ids[number, : len(prefix)] = [start, *prefix][: len(prefix)]
                labels[number, : len(prefix)] = prefix
            aligned = any(row.sentence.aligned for row in rows)
            outputs = self._stepper.prefill(state, token_ids, labels, want_attention=aligned)
            for number, (row, prefix) in enumerate(zip(rows, prefixes, strict=True)):
                row.prefix_scores = outputs.scores_BP[number, : len(prefix)].tolist()
                if row.sentence.aligned:
                    assert outputs.attention_BPS is not None
                    real = slice(len(prefix)), slice(len(row.sentence.source))
                    row.prefix_attention = list(outputs.attention_BPS[number][real].copy())
        return np.array([len(prefix) for prefix in prefixes], dtype=np.int64)

    def _constrained(self) -> list[int]:
        """Rows whose next step needs the whole distribution."""
        if not self._any_constraint:
            return []
        return [n for n in np.flatnonzero(self._running).tolist() if self._rows[n].constrained]

    def _attended(self) -> list[int]:
        """Rows whose next step needs the source attention."""
        if not self._any_attended:
            return []
        running = np.flatnonzero(self._running).tolist()
        return [number for number in running if self._rows[number].sentence.attended]

    def _constrain(self, number: int, logits_KV: Floats, candidates: _Candidates) -> None:
        """Replace one sentence's candidates by those of its edited distribution."""
        row, live = self._rows[number], np.isfinite(self._scores[number])
        if not np.isfinite(logits_KV[live].max(axis=1)).all():
            candidates.scores_BN[number] = np.nan  # what the model itself would have given
            return
        logits_KV = logits_KV.copy()
        logits_KV[~live] = 0.0
        histories = [row.history(beam) if live[beam] else [] for beam in range(len(live))]
        for beam in np.flatnonzero(live).tolist():
            row.edit(logits_KV[beam], histories[beam])
        log_probs_KV, constraints = log_softmax(logits_KV), row.sentence.constraints
        for beam in np.flatnonzero(live).tolist():
            constraints.restrict(log_probs_KV[beam], histories[beam])
        count, scores_K = candidates.scores_BN.shape[1], self._scores[number]
        if constraints.required:
            best = allocate(log_probs_KV, scores_K, histories, constraints, count)
        else:
            best = best_continuations(log_probs_KV, scores_K, count)
        for target, values, filler in zip(candidates, best, (-np.inf, 0, 0), strict=True):
            target[number, : len(values)] = values
            target[number, len(values) :] = filler

    def _advance(self, candidates: _Candidates) -> list[Finished]:
        """Choose the next beams, collect finished hypotheses, retire finished sentences."""
        beam_size = self._beam_size
        self._steps_left -= 1
        # As a rule the best candidates are the next beams.
        scores_BK = candidates.scores_BN[:, :beam_size].copy()
        tokens_BK = candidates.tokens_BN[:, :beam_size].astype(np.int64)
        parents_BK = candidates.parents_BN[:, :beam_size].copy()
        queries_B = np.full_like(self._queries, beam_size)
        found = candidates.by_sentence()
        steps = [(t[:beam_size], p[:beam_size], s[:beam_size]) for s, t, p in found]
        finished: list[Finished] = []
        for number in self._eventful(candidates.scores_BN, found):
            row, last_step = self._rows[number], bool(self._steps_left[number] == 0)
            scores, tokens, parents = found[number]
            if not all(score < math.inf for score in scores):  # NaN as well
                error = DecodingError("the model gave a non-finite score for this sentence")
                finished.append(Finished(row.index, error=error))
                self._retire(number)
                continue
            chosen = row.finish(found[number], beam_size, last_step=last_step)
            live = [beam for beam, candidate in enumerate(chosen) if candidate >= 0]
            if row.is_done(last_step=last_step or not live):
                finished.append(row.result(int(self._tree.peak[number])))
                self._retire(number)
                continue
            steps[number] = next_tokens, next_parents, next_scores = (
                [tokens[n] if n >= 0 else 0 for n in chosen],
                [parents[max(n, 0)] for n in chosen],
                [scores[n] if n >= 0 else -math.inf for n in chosen],
            )
            tokens_BK[number], parents_BK[number] = next_tokens, next_parents
            scores_BK[number] = next_scores
            # Dead beams may stand between live ones: slots up to the last live one are in use.
            queries_B[number] = live[-1] + 1
        if not self._running.all():
            idle_B = ~self._running
            scores_BK[idle_B], tokens_BK[idle_B], queries_B[idle_B] = -np.inf, 0, 0
        self._tree.advance(parents_BK, self._queries)
        self._scores, self._tokens, self._queries = scores_BK, tokens_BK, queries_B
        self._positions = self._positions + self._running[:, None]
        for row, step in zip(self._rows, steps, strict=True):
            row.steps.append(step)
        return finished

    def _eventful(self, scores_BN: Floats, found: Sequence[_Found]) -> list[int]:
        """Sentences of which more is to be seen to than that their best candidates go on."""
        beam_size, all_finite = self._beam_size, bool(np.isfinite(scores_BN).all())
        state = zip(self._running.tolist(), self._steps_left.tolist(), found, strict=True)
        return [
            number
            for number, (running, steps_left, (scores, tokens, _)) in enumerate(state)
            if running
            and (
                EOS_ID in tokens[:beam_size]
                or not steps_left
                or not (all_finite or all(map(math.isfinite, scores)))
            )
        ]

    def _retire(self, number: int) -> None:
        """Make a row idle."""
        self._running[number] = False
        self._queries[number] = 0
        self._positions[number] = 0
        self._tokens[number] = 0
        self._scores[number] = -np.inf
        self._tree.clear(number)

    def _repack(self) -> None:
        """Drop dead slots where due, and idle rows when more than a quarter are."""
        rows = np.arange(len(self._rows))
        if not self._running.all():
            live = np.flatnonzero(self._running)
            if not live.size:
                self._empty()
                return
            self._stepper.trim(self._state, int(self._lengths[live].max()))
            if (len(rows) - live.size) * 4 > len(rows):
                rows = live
        repack = self._tree.repack(rows)
        if repack is None:
            return
        self._stepper.repack(self._state, repack)
        if len(rows) < len(self._rows):
            self._rows = [self._rows[number] for number in rows]
            self._running, self._steps_left = self._running[rows], self._steps_left[rows]
            self._lengths = self._lengths[rows]
            self._tokens, self._scores = self._tokens[rows], self._scores[rows]
            self._positions, self._queries = self._positions[rows], self._queries[rows]


_Found = tuple[list[float], list[int], list[int]]
"""Scores, tokens and parents of one sentence's candidates."""


class _Candidates(NamedTuple):
    """The best continuations of each sentence, best first."""

    scores_BN: Floats
    tokens_BN: NDArray[np.int32]
    parents_BN: NDArray[np.int32]

    def copy(self) -> _Candidates:
        """Arrays of one's own."""
        return _Candidates(self.scores_BN.copy(), self.tokens_BN.copy(), self.parents_BN.copy())

    def by_sentence(self) -> list[_Found]:
        """Scores, tokens and parents of each sentence."""
        return list(zip(*(array.tolist() for array in self), strict=True))


def decode(stepper: Stepper, sentences: Sequence[Sentence]) -> list[Finished]:
    """Decode sentences of one beam size as one batch; results in input order."""
    search = BeamSearch(stepper, sentences)
    finished: list[Finished] = []
    while search.live:
        finished += search.step()
    return sorted(finished, key=lambda result: result.index)
