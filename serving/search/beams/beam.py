"""Beam search over any model behind the `Stepper` protocol; greedy search is beam_size 1.

Shape letters: B rows, R some of them, K beams, Q queries, P prefix tokens, S source ids,
V vocabulary, N candidates.

The rules are CTranslate2's: 2K candidates a step; only an end candidate ranked among the first K
finishes a hypothesis, and the next best candidate that does not end takes its beam; a sentence
stops at round(beam_size * patience) finished hypotheses, or, without length and coverage penalty,
when its best beam is finished.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from serving.arrays import Floats
from serving.errors import DecodingError
from serving.search.beams.rows import MOST_STEPS, Candidates, NextBeams, RowCandidates, Rows
from serving.search.beams.sentence import Finished, Sentence
from serving.search.beams.sentence_search import SentenceSearch
from serving.search.stepper import BoundSteps, State, Stepper

_LEAST_ALONE = 4
"""Smallest number of sentences for which the first step has one query per sentence. For fewer
sentences, computing the dead beams costs less than a step of another shape."""


class BeamSearch:
    """A running batch of sentences of one beam size; call `step` while it is `live`.

    Sentences may join between steps (`add`) and are numbered in the order in which they joined. No
    sentence's result depends on the others.
    """

    encode_s: float
    """Seconds that the encoder took for the sentences that joined last."""
    _rows: Rows
    """The rows. After all sentences have left, their data stay here until the next one starts a
    batch."""
    _state: State | None
    """The stepper's arrays, one entry per row; None while no sentence is being decoded."""
    _bound: BoundSteps | None = None
    """Steps on the rows' arrays of layout `_bound_layout`."""
    _bound_layout = -1
    _may_bind = True

    def __init__(self, stepper: Stepper, sentences: Sequence[Sentence]) -> None:
        """Start with at least one sentence. The first one sets the beam size of the batch, and
        whether its sentences have shortlists."""
        self._stepper = stepper
        self._beam_size, self._shortlisted = sentences[0].group
        self._joined = 0
        self._state = None
        self.add(sentences)

    def add(self, sentences: Sequence[Sentence]) -> list[int]:
        """Add sentences; returns their numbers.

        Raises ValueError if one belongs to another group than the batch.
        """
        self._check_group(sentences)
        numbers = list(range(self._joined, self._joined + len(sentences)))
        self._joined += len(sentences)
        sources = [sentence.source for sentence in sentences]
        searches = [SentenceSearch(n, s) for n, s in zip(numbers, sentences, strict=True)]
        joining = Rows(searches, self._stepper)
        began = time.perf_counter()
        state = self._stepper.encode(sources)
        self.encode_s = time.perf_counter() - began
        try:
            self._prefill(state, searches)
        except BaseException:
            self._stepper.free(state)
            raise
        if self._state is None:
            self._state, self._rows = state, joining
        else:
            idle = self._rows.idle(len(joining))
            self._stepper.extend(self._state, state, idle)
            self._rows.fill(joining, idle)
        return numbers

    @property
    def num_live(self) -> int:
        """Number of sentences being decoded."""
        return self._rows.num_live

    @property
    def live(self) -> bool:
        """Whether any sentence is still being decoded."""
        return self._rows.num_live > 0

    @property
    def num_steps(self) -> int:
        """Number of steps that the running batch has done."""
        return self._rows.tree.num_steps

    @property
    def peak_slots(self) -> dict[int, int]:
        """The most cache slots that each sentence of the batch has used so far, by number."""
        if self._state is None:
            return {}
        peaks = self._rows.tree.peak.tolist()
        return {s.index: peak for s, peak in zip(self._rows.searches, peaks, strict=True)}

    def agreed(self, index: int) -> list[int]:
        """The ids that all hypotheses share that may still be a sentence's best, including the
        prefix."""
        rows = self._rows
        rows.note()
        row = next(row for row, search in enumerate(rows.searches) if search.index == index)
        return rows.searches[row].agreed(np.flatnonzero(rows.scores_BK[row] > -np.inf).tolist())

    def cancel(self, index: int) -> None:
        """Drop a sentence without a result. Does nothing if it is not being decoded."""
        rows = self._rows
        for row, search in enumerate(rows.searches):
            if search.index == index and rows.running_B[row]:
                rows.retire(row)
                if not rows.num_live:
                    self._free()  # the next sentence starts a new batch
                return

    def close(self) -> None:
        """Drop all sentences without results, and free the memory of the batch."""
        if self._state is not None:
            self._free()

    def step(self, most: int = MOST_STEPS) -> list[Finished]:
        """Generate a token of every live sentence, or up to `most`, while nothing happens in any;
        returns the finished ones."""
        rows = self._rows
        constrained, attended = rows.constrained(), rows.attended()
        alone = self._begins_alone() and not constrained
        bound = None if constrained or attended or alone else self._bind()
        if bound is not None:
            if rows.go_on(bound, most):
                return self._let_go([], bound)
            return self._settle_bound(bound)
        outputs = self._stepper.step(
            self._state,
            rows.inputs(1 if alone else self._beam_size),
            want_logits=bool(constrained),
            attention_rows=attended,
        )
        candidates = Candidates(outputs.scores_BN, outputs.tokens_BN, outputs.parents_BN)
        if constrained:
            assert outputs.logits_BQV is not None
            candidates = self._constrained(candidates, constrained, outputs.logits_BQV)
        if attended:
            assert outputs.attention_RQS is not None
            self._note_attention(attended, outputs.attention_RQS)
        return self._advance(candidates)

    def _bind(self) -> BoundSteps | None:
        """Steps on the present arrays; None if the stepper has none."""
        layout = self._rows.tree.layout
        if self._bound is None or layout != self._bound_layout or not self._bound.is_current():
            if not self._may_bind:
                return None
            self._bound = self._stepper.bind(self._state, self._rows.arrays())
            self._bound_layout, self._may_bind = layout, self._bound is not None
        return self._bound

    def _free(self) -> None:
        """Free the memory of the batch."""
        self._stepper.free(self._state)
        self._state = self._bound = None

    def _check_group(self, sentences: Sequence[Sentence]) -> None:
        for sentence in sentences:
            if sentence.shortlisted != self._shortlisted:
                raise ValueError("sentences with and without shortlists cannot share a batch")
            if sentence.options.beam_size != self._beam_size:
                raise ValueError(
                    f"sentences of one batch must share beam_size = {self._beam_size}, got "
                    f"{sentence.options.beam_size}"
                )

    def _prefill(self, state: State, searches: Sequence[SentenceSearch]) -> None:
        """Put the start and all prefix tokens except the last into new caches.

        The last token goes through the first ordinary step, which yields the candidates.
        """
        prefixes = [search.sentence.target_prefix for search in searches]
        if not any(prefixes):
            return
        token_ids_BP = np.zeros((len(prefixes), max(map(len, prefixes))), dtype=np.int64)
        labels_BP = np.zeros_like(token_ids_BP)
        for row, (search, prefix) in enumerate(zip(searches, prefixes, strict=True)):
            token_ids_BP[row, : len(prefix)] = [search.sentence.start, *prefix][: len(prefix)]
            labels_BP[row, : len(prefix)] = prefix
        aligned = any(search.aligned for search in searches)
        outputs = self._stepper.prefill(state, token_ids_BP, labels_BP, want_attention=aligned)
        for row, (search, prefix) in enumerate(zip(searches, prefixes, strict=True)):
            search.prefix_scores = outputs.scores_BP[row, : len(prefix)].tolist()
            if search.aligned:
                assert outputs.attention_BPS is not None
                real = slice(len(prefix)), slice(len(search.sentence.source))
                search.prefix_attention = list(outputs.attention_BPS[row][real].copy())

    def _begins_alone(self) -> bool:
        """Whether one query per sentence is enough: before the first step all other beams are
        dead."""
        enough = len(self._rows) >= _LEAST_ALONE and self._stepper.one_query_first
        return enough and not self._rows.begun

    def _constrained(
        self, candidates: Candidates, constrained: Sequence[int], logits_BQV: Floats
    ) -> Candidates:
        """The candidates. Some rows have those of their edited distributions instead."""
        candidates, count = candidates.copy(), candidates.scores_BN.shape[1]
        for row in constrained:
            search, scores_K = self._rows.searches[row], self._rows.scores_BK[row]
            best = search.constrained_candidates(logits_BQV[row], scores_K, count)
            candidates.replace(row, best)
        return candidates

    def _note_attention(self, attended: Sequence[int], attention_RQS: Floats) -> None:
        """Store the attention of some rows' queries to the ids of their sources."""
        for row, attention_KS in zip(attended, attention_RQS, strict=True):
            search = self._rows.searches[row]
            search.attention.append(attention_KS[:, : len(search.sentence.source)].copy())

    def _settle_bound(self, bound: BoundSteps) -> list[Finished]:
        """Do the bound steps' waiting step: native code moves all beams but those of the rows in
        which something happens. Returns the finished sentences, whose rows become idle."""
        rows, candidates = self._rows, Candidates(*bound.found)
        chosen = rows.choose(bound)
        if chosen is None:
            raise DecodingError("the model gave a candidate that continues no hypothesis")
        eventful, beams = chosen
        finished = self._settle_rows(eventful, candidates, beams)
        rows.move(bound)
        return self._let_go(finished, bound)

    def _advance(self, candidates: Candidates) -> list[Finished]:
        """Continue with the beams of the candidates, and free what no live sentence needs. Returns
        the finished sentences, whose rows become idle."""
        rows = self._rows
        rows.note()
        rows.steps_left_B -= 1
        beams = NextBeams.best(candidates, self._beam_size)
        finished = self._settle_rows(self._eventful(candidates), candidates, beams)
        rows.advance(beams)
        return self._let_go(finished, None)

    def _settle_rows(
        self, eventful: Sequence[int], candidates: Candidates, beams: NextBeams
    ) -> list[Finished]:
        """Settle the rows in which something happens; returns their finished sentences."""
        settled = (self._settle(row, candidates.of(row), beams) for row in eventful)
        return [finished for finished in settled if finished is not None]

    def _let_go(self, finished: list[Finished], bound: BoundSteps | None) -> list[Finished]:
        """Free what no live sentence needs: padding of sources, idle rows, dead cache slots.
        Returns its argument."""
        rows = self._rows
        if not rows.num_live:
            self._free()
            return finished
        if rows.num_live < len(rows):
            self._stepper.trim(self._state, rows.longest_source)
            bound = bound if bound and bound.is_current() else None
        repack = rows.repack(bound)
        if repack is not None:
            self._stepper.repack(self._state, repack)
        return finished

    def _eventful(self, candidates: Candidates) -> list[int]:
        """The rows whose best candidates are not simply the next beams, because a hypothesis ends,
        it is the sentence's last step, or a score is not finite."""
        rows, beam_size = self._rows, self._beam_size
        plain_B = rows.steps_left_B > 0
        plain_B &= np.isfinite(candidates.scores_BN).all(axis=1)
        tokens_BK = candidates.tokens_BN[:, :beam_size].tolist()
        return [
            row
            for row, (running, plain) in enumerate(zip(rows.running_B, plain_B, strict=True))
            if running and not (plain and rows.searches[row].ends.isdisjoint(tokens_BK[row]))
        ]

    def _settle(self, row: int, candidates: RowCandidates, beams: NextBeams) -> Finished | None:
        """Collect the hypotheses of a row that end now. If its sentence is finished, the row
        becomes idle and the sentence is returned; otherwise the row's next beams are chosen."""
        rows = self._rows
        search, last_step = rows.searches[row], bool(rows.steps_left_B[row] == 0)
        if not all(score < math.inf for score in candidates[0]):  # NaN as well
            rows.retire(row)
            error = DecodingError("the model gave a non-finite score for this sentence")
            return Finished(search.index, error=error)
        chosen = search.finish(candidates, self._beam_size, last_step=last_step)
        if search.is_done(last_step=last_step or max(chosen) < 0):
            return replace(search.result(), peak_slots=rows.retire(row))
        beams.choose(row, candidates, chosen)
        return None


def decode(stepper: Stepper, sentences: Sequence[Sentence]) -> list[Finished]:
    """Decode sentences of one beam size as one batch; results in input order."""
    search = BeamSearch(stepper, sentences)
    finished: list[Finished] = []
    while search.live:
        finished += search.step()
    return sorted(finished, key=lambda result: result.index)
