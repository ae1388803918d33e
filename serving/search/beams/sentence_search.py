"""The search of one sentence: its beams, step by step, and its finished hypotheses.

Shape letters: K beams, S source ids, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from serving.arrays import Floats
from serving.errors import InvalidOptionError
from serving.search.beams.constraints import allocate
from serving.search.beams.sentence import Finished, Hypothesis, Sentence
from serving.search.logits import (
    Best,
    best_continuations,
    forbid_ends,
    forbid_repeated_ngrams,
    log_softmax,
    penalise_repetition,
)

Step = tuple[list[int], list[int], list[float]]
"""The beams after one step: the token, the parent beam and the cumulative score of each."""


class _Ended(NamedTuple):
    """The stored part of a finished hypothesis. The rest is computed for those that are returned;
    most are not."""

    score: float
    token: int
    """The last token: eos, unless the hypothesis ended at the last step."""
    parent: int
    """The beam that the last token continues."""
    cumulative: float
    steps: int
    """Number of steps before the one that produced the last token."""
    missing: int = 0
    """Number of required terms that the hypothesis does not contain."""

    @property
    def rank(self) -> tuple[int, float]:
        """The sort key of hypotheses: the lowest rank is the best hypothesis."""
        return self.missing, -self.score


class SentenceSearch:
    """The search of one sentence: a tree of tokens, and its finished hypotheses."""

    def __init__(self, index: int, sentence: Sentence) -> None:
        self.index, self.sentence, self.options = index, sentence, sentence.options
        self.aligned = sentence.text is not None
        """Whether the hypotheses need their attention to the source."""
        self.attended = self.aligned or sentence.options.coverage_penalty != 0
        """Whether decoding needs the attention to the source, for the result or for scores."""
        self.constrains = sentence.options.constrains or sentence.constraints is not None
        """Whether some step needs the whole distribution."""
        self.ends = frozenset(sentence.ends)
        """The ids that end a hypothesis."""
        self.prefix_scores: list[float] = []
        """Log-probability of each prefix token."""
        self.prefix_attention: list[Floats] = []
        """Source attention [S] of the query that produced each prefix token."""
        self.steps: list[Step] = []
        self.attention: list[Floats] = []
        """Source attention [K,S] of the queries of each step, if the sentence is `attended`."""
        self._finished: list[_Ended] = []
        self._top_finished = False

    @property
    def constrained(self) -> bool:
        """Whether the next step needs the whole distribution of this sentence, to edit it."""
        return (
            self.options.constrains_always
            or self._generated < self.options.min_length
            or self.sentence.constraints is not None
        )

    def history(self, beam: int) -> list[int]:
        """The ids of the hypothesis that now stands in a beam, prefix included."""
        return [*self.sentence.target_prefix, *self._tokens(self._path(beam))]

    def constrained_candidates(self, logits_KV: Floats, scores_K: Floats, count: int) -> Best:
        """The best continuations of all beams under the options and constraints, at most `count`.

        `logits_KV` come from the model and do not change; `scores_K` are the beams' cumulative
        scores, -inf for dead ones. If the model gave a live beam no finite logit, all scores are
        NaN, as without constraints.
        """
        live_K = np.isfinite(scores_K)
        if not np.isfinite(logits_KV[live_K].max(axis=1)).all():
            nothing = np.zeros(count, dtype=np.int32)
            return np.full(count, np.nan, dtype=np.float32), nothing, nothing
        live = np.flatnonzero(live_K).tolist()
        logits_KV = logits_KV.copy()
        logits_KV[~live_K] = 0.0
        histories = [self.history(beam) if live_K[beam] else [] for beam in range(len(live_K))]
        for beam in live:
            self._edit(logits_KV[beam], [*self.sentence.before, *histories[beam]])
        log_probs_KV, constraints = log_softmax(logits_KV), self.sentence.constraints
        if constraints:
            for beam in live:
                constraints.restrict(log_probs_KV[beam], histories[beam], self.sentence.ends)
            if constraints.required:
                return allocate(log_probs_KV, scores_K, histories, constraints, count)
        return best_continuations(log_probs_KV, scores_K, count)

    def finish(
        self,
        candidates: tuple[list[float], list[int], list[int]],
        beam_size: int,
        *,
        last_step: bool,
    ) -> list[int]:
        """Collect the hypotheses that end now, and choose the beams of the next step.

        `candidates` are scores, tokens and parents, best first. Returns for each beam the place of
        its candidate, or -1 if it has none. This is the beam's own candidate or, if that one ends,
        the next best that continues.
        """
        scores, tokens, parents = candidates
        ends = self.ends
        spare = (
            candidate
            for candidate in range(beam_size, len(scores))
            if tokens[candidate] not in ends and scores[candidate] > -np.inf
        )
        chosen = []
        for beam in range(beam_size):
            candidate = beam if scores[beam] > -np.inf else -1
            if candidate >= 0 and (tokens[beam] in ends or last_step):
                self._top_finished |= beam == 0
                self._finished.append(self._end(tokens[beam], parents[beam], scores[beam]))
                candidate = next(spare, -1)
            chosen.append(candidate)
        return chosen

    def is_done(self, *, last_step: bool) -> bool:
        """Whether the sentence has all the hypotheses that it needs, or can get no more."""
        options = self.options
        if last_step:
            return True
        if options.stops_at_best:
            return self._top_finished and len(self._finished) >= options.num_hypotheses
        return len(self._finished) >= options.max_finished

    def result(self) -> Finished:
        """The finished hypotheses with the most required terms, sorted by score, best first. Equal
        scores keep the order in which they finished."""
        if not self._finished:
            error = InvalidOptionError(
                "the options leave no token that could continue this sentence; relax them"
            )
            return Finished(self.index, error=error)
        ranked = sorted(self._finished, key=lambda ended: ended.rank)
        ranked = [ended for ended in ranked if ended.missing == ranked[0].missing]
        asked, original = self.options.num_hypotheses, self.sentence.original
        best = tuple(map(self._hypothesis, ranked[:asked]))
        more = ranked[asked:] if original and original.noteworthy else []
        others = tuple(map(self._hypothesis, more))
        return Finished(self.index, best, others)

    def agreed(self, live: Sequence[int]) -> list[int]:
        """The ids that all hypotheses share that may still be the best, including the prefix. These
        are the hypotheses in the live beams and the best finished one."""
        best = min(self._finished, key=lambda ended: ended.rank) if self._finished else None
        beams, length = set(live), len(self.steps)
        while length and (len(beams) != 1 or (best and best.steps <= length)):
            if best and best.steps == length:
                beams.add(best.parent)
                best = None
                continue
            length -= 1
            beams = {self.steps[length][1][beam] for beam in beams}
        path = self._path(beams.pop(), length) if length else []
        return [*self.sentence.target_prefix, *self._tokens(path)]

    @property
    def _generated(self) -> int:
        """Number of tokens so far, including those of the prefix that count as generated."""
        return len(self.steps) + self.sentence.counted

    @property
    def _counted_score(self) -> float:
        """Log-probability of the tokens of the prefix that count as generated."""
        return sum(self.prefix_scores[len(self.prefix_scores) - self.sentence.counted :])

    def _edit(self, logits_V: Floats, history: Sequence[int]) -> None:
        """Apply the options to the logits of one beam, in place."""
        options = self.options
        if options.repetition_penalty != 1.0 and history:
            penalise_repetition(logits_V, history, options.repetition_penalty)
        if options.no_repeat_ngram_size:
            forbid_repeated_ngrams(logits_V, history, options.no_repeat_ngram_size)
        if self._generated < options.min_length:
            forbid_ends(logits_V, self.sentence.ends)

    def _path(self, beam: int, steps: int | None = None) -> list[int]:
        """The beam of a hypothesis after each step. The hypothesis is the one in `beam` after
        `steps` steps, or now."""
        path = []
        for _, parents, _ in reversed(self.steps[:steps]):
            path.append(beam)
            beam = parents[beam]
        return path[::-1]

    def _tokens(self, path: list[int]) -> list[int]:
        return [tokens[beam] for beam, (tokens, _, _) in zip(path, self.steps, strict=False)]

    def _end(self, token: int, parent: int, cumulative: float) -> _Ended:
        ended = token in self.ends
        coverage = self._coverage(parent, ended=ended) if self.options.coverage_penalty else 0.0
        length = self._generated + (not ended)
        total = cumulative + self._counted_score
        score = self.options.score(total, length, ended=ended, coverage=coverage)
        missing = 0
        constraints = self.sentence.constraints
        if constraints and constraints.required:
            missing = constraints.missing([*self.history(parent), token])
        return _Ended(score, token, parent, cumulative, len(self.steps), missing)

    def _hypothesis(self, found: _Ended) -> Hypothesis:
        """A finished hypothesis with its tokens and their scores, read back from the steps."""
        path = self._path(found.parent, found.steps)
        tokens = self._tokens(path)
        totals = [scores[beam] for beam, (_, _, scores) in zip(path, self.steps, strict=False)]
        token_scores = [b - a for a, b in pairwise([0.0, *totals, found.cumulative])]
        ended = found.token in self.ends
        if not ended:
            tokens.append(found.token)
        attention_TS = None
        if self.aligned:
            received = self._attention(path, found.parent)
            attention_TS = np.stack([*self.prefix_attention, *received])
        return Hypothesis(
            tokens=(*self.sentence.target_prefix, *tokens),
            score=found.score,
            cumulative=found.cumulative + self._counted_score,
            token_scores=(*self.prefix_scores, *token_scores),
            end=found.token if ended else None,
            attention_TS=attention_TS,
            missing=found.missing,
        )

    def _attention(self, path: list[int], parent: int) -> list[Floats]:
        """Source attention [S] of the query that produced each token of a path. The last row is
        that of the query in beam `parent`, which produces the token after the path."""
        queries = [parents[beam] for beam, (_, parents, _) in zip(path, self.steps, strict=False)]
        steps = zip(self.attention, [*queries, parent], strict=False)
        return [attention_KS[query] for attention_KS, query in steps]

    def _coverage(self, parent: int, *, ended: bool) -> float:
        """The coverage term of the hypothesis in a beam: the sum over source positions of
        log(min(attention received, 1)). It excludes the attention of the query that produced
        eos."""
        rows = self._attention(self._path(parent), parent)
        received_S = np.zeros(len(self.sentence.source))
        for attention_S in rows[:-1] if ended else rows:
            received_S += attention_S
        return float(np.log(np.clip(received_S, 1e-9, 1.0)).sum())
