"""What one sentence has generated: its beams, step by step, and its finished hypotheses.

Shape letters: K beams, S source ids, V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from serving.arrays import Floats
from serving.errors import InvalidOptionError, ServingError
from serving.search.constraints import NO_CONSTRAINTS, Constraints
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.logits import forbid_end, forbid_repeated_ngrams, penalise_repetition
from serving.search.options import SearchOptions


class Group(NamedTuple):
    """What sentences that are decoded together have in common."""

    beam_size: int
    shortlisted: bool


@dataclass(frozen=True)
class Sentence:
    """One sentence to decode: source ids with eos, and how."""

    source: Sequence[int]
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: Sequence[int] = ()
    start: int = BOS_ID
    """The id before the prefix."""
    text: str | None = None
    """The text of the source, where the hypotheses' attention to it is wanted; what is found does
    not depend on it."""
    constraints: Constraints = NO_CONSTRAINTS
    counted: int = 0
    """Ids at the end of the prefix that count as generated: in scores and in all lengths."""
    streamed: bool = False
    """Whether it is told what its hypotheses agree on."""
    guarded: bool = False
    """Whether it is decoded again because its output looped."""
    first_of: Sentence | None = None
    """The sentence with `return_alternatives` whose likeliest first tokens this one finds."""

    @functools.cached_property
    def key(self) -> tuple[object, ...]:
        """Sentences of one key have one result."""
        whole = self.first_of or self
        return (
            tuple(whole.source),
            whole.options,
            tuple(whole.target_prefix),
            whole.text,
            whole.constraints,
            whole.streamed,
            whole.counted,
        )

    @property
    def group(self) -> Group:
        """Those of one group share a batch."""
        return Group(self.options.beam_size, self.shortlisted)

    @property
    def max_steps(self) -> int:
        """Tokens that may be generated, eos included."""
        return self.options.max_steps(len(self.source)) - self.counted

    @property
    def aligned(self) -> bool:
        """Whether the hypotheses' source attention is wanted."""
        return self.text is not None

    @property
    def attended(self) -> bool:
        """Whether decoding needs the source attention."""
        return self.aligned or self.options.coverage_penalty != 0

    @property
    def shortlisted(self) -> bool:
        """Whether it is decoded with a shortlist: if that is asked for, and neither a prefix nor a
        constraint calls for the whole vocabulary."""
        return self.options.shortlist and not (
            self.target_prefix or self.options.constrains or self.constraints or self.first_of
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output: ids without bos and eos, the forced prefix included."""

    tokens: tuple[int, ...]
    score: float
    """Normalised score, see `SearchOptions.score`."""
    cumulative: float
    """Sum of log-probabilities of the generated tokens, eos included; of the prefix only what is
    `Sentence.counted`."""
    token_scores: tuple[float, ...]
    """Log-probability of each prefix and generated token, and of eos where it was reached."""
    finished: bool
    """Ended with eos rather than at max_length."""
    attention_TS: Floats | None = field(default=None, compare=False, repr=False)
    """Source attention of the query that gave each prefix and generated token, and eos where it was
    reached; there where `Sentence.aligned`."""
    missing: int = 0
    """Required terms that it does not hold."""


@dataclass(frozen=True)
class Finished:
    """A sentence that has left the batch."""

    index: int
    hypotheses: tuple[Hypothesis, ...] = ()
    error: ServingError | None = None
    peak_slots: int = 0
    """The most cache slots that it used, see `BeamSearch.peak_slots`."""


class _Ended(NamedTuple):
    """What is kept of a finished hypothesis: most are never returned."""

    score: float
    token: int
    """The last, eos where that ended it."""
    parent: int
    """The beam that it came from."""
    cumulative: float
    steps: int
    """Before the last token."""
    missing: int = 0
    """Required terms that it does not hold."""

    @property
    def rank(self) -> tuple[int, float]:
        """The lowest is the best."""
        return self.missing, -self.score


class SentenceSearch:
    """What one sentence has generated: a tree of tokens, and its finished hypotheses."""

    def __init__(self, index: int, sentence: Sentence) -> None:
        self.index, self.sentence, self.options = index, sentence, sentence.options
        self.prefix_scores: list[float] = []
        self.prefix_attention: list[Floats] = []
        """Source attention [S] of each prefix token."""
        self.steps: list[tuple[list[int], list[int], list[float]]] = []
        """Token, parent and cumulative score of each beam at each step."""
        self.attention: list[Floats] = []
        """Source attention [K,S] of each step, where the sentence is `attended`."""
        self._finished: list[_Ended] = []
        self._top_finished = False

    @property
    def constrained(self) -> bool:
        """Whether the next step needs this sentence's whole distribution."""
        return (
            self.options.constrains_always
            or self._generated < self.options.min_length
            or bool(self.sentence.constraints)
        )

    def history(self, beam: int) -> list[int]:
        """What one beam holds, prefix included."""
        return [*self.sentence.target_prefix, *self._tokens(self._path(beam))]

    def edit(self, logits_V: Floats, history: Sequence[int]) -> None:
        """Apply the options to the logits of one beam."""
        options = self.options
        if options.repetition_penalty != 1.0 and history:
            penalise_repetition(logits_V, history, options.repetition_penalty)
        if options.no_repeat_ngram_size:
            forbid_repeated_ngrams(logits_V, history, options.no_repeat_ngram_size)
        if self._generated < options.min_length:
            forbid_end(logits_V)

    def finish(
        self,
        candidates: tuple[list[float], list[int], list[int]],
        beam_size: int,
        *,
        last_step: bool,
    ) -> list[int]:
        """Collect hypotheses that end now; returns the candidate of each beam of the next step, -1
        where there is none: those that go on, and the next best in the place of those that end."""
        scores, tokens, parents = candidates
        spare = (
            candidate
            for candidate in range(beam_size, len(scores))
            if tokens[candidate] != EOS_ID and scores[candidate] > -np.inf
        )
        chosen = []
        for beam in range(beam_size):
            candidate = beam if scores[beam] > -np.inf else -1
            if candidate >= 0 and (tokens[beam] == EOS_ID or last_step):
                self._top_finished |= beam == 0
                self._finished.append(self._end(tokens[beam], parents[beam], scores[beam]))
                candidate = next(spare, -1)
            chosen.append(candidate)
        return chosen

    def is_done(self, *, last_step: bool) -> bool:
        """Whether the sentence has all the hypotheses it needs."""
        options = self.options
        if last_step:
            return True
        if options.stops_at_best:
            return self._top_finished and len(self._finished) >= options.num_hypotheses
        return len(self._finished) >= options.max_finished

    def result(self, peak_slots: int) -> Finished:
        """Finished hypotheses, best first, of those with most required terms; equal scores keep
        their order of finishing."""
        if not self._finished:
            error = InvalidOptionError(
                "the options leave this sentence no token to go on with; loosen them"
            )
            return Finished(self.index, error=error)
        ranked = sorted(self._finished, key=lambda ended: ended.rank)
        ranked = [ended for ended in ranked if ended.missing == ranked[0].missing]
        best = tuple(map(self._hypothesis, ranked[: self.options.num_hypotheses]))
        return Finished(self.index, best, peak_slots=peak_slots)

    def agreed(self, live: Sequence[int]) -> list[int]:
        """Ids, prefix included, with which all hypotheses begin that may still be the best: those
        in live beams, and the best of the finished ones."""
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
        """Tokens so far, those of the prefix that count included."""
        return len(self.steps) + self.sentence.counted

    @property
    def _counted_score(self) -> float:
        """Log-probability of the tokens of the prefix that count as generated."""
        return sum(self.prefix_scores[len(self.prefix_scores) - self.sentence.counted :])

    def _path(self, beam: int, steps: int | None = None) -> list[int]:
        """The beam at each step of the hypothesis that stood in `beam` after so many; now, if not
        given."""
        path = []
        for _, parents, _ in reversed(self.steps[:steps]):
            path.append(beam)
            beam = parents[beam]
        return path[::-1]

    def _tokens(self, path: list[int]) -> list[int]:
        return [tokens[beam] for beam, (tokens, _, _) in zip(path, self.steps, strict=False)]

    def _end(self, token: int, parent: int, cumulative: float) -> _Ended:
        ended = token == EOS_ID
        coverage = self._coverage(parent, ended=ended) if self.options.coverage_penalty else 0.0
        length = self._generated + (not ended)
        total = cumulative + self._counted_score
        score = self.options.score(total, length, ended=ended, coverage=coverage)
        missing = 0
        if self.sentence.constraints.required:
            missing = self.sentence.constraints.missing([*self.history(parent), token])
        return _Ended(score, token, parent, cumulative, len(self.steps), missing)

    def _hypothesis(self, found: _Ended) -> Hypothesis:
        """Tokens and their scores, by the way back through the steps."""
        path = self._path(found.parent, found.steps)
        tokens = self._tokens(path)
        totals = [scores[beam] for beam, (_, _, scores) in zip(path, self.steps, strict=False)]
        token_scores = [b - a for a, b in pairwise([0.0, *totals, found.cumulative])]
        ended = found.token == EOS_ID
        if not ended:
            tokens.append(found.token)
        attention_TS = None
        if self.sentence.aligned:
            received = self._attention(path, found.parent)
            attention_TS = np.stack([*self.prefix_attention, *received])
        return Hypothesis(
            tokens=(*self.sentence.target_prefix, *tokens),
            score=found.score,
            cumulative=found.cumulative + self._counted_score,
            token_scores=(*self.prefix_scores, *token_scores),
            finished=ended,
            attention_TS=attention_TS,
            missing=found.missing,
        )

    def _attention(self, path: list[int], parent: int) -> list[Floats]:
        """Source attention [S] of the query that gave each token of a path, and of the query that
        gives the next, which is beam `parent`."""
        queries = [parents[beam] for beam, (_, parents, _) in zip(path, self.steps, strict=False)]
        steps = zip(self.attention, [*queries, parent], strict=False)
        return [attention_KS[query] for attention_KS, query in steps]

    def _coverage(self, parent: int, *, ended: bool) -> float:
        """Sum over source positions of log(min(attention received, 1)), of the hypothesis that
        stands in a beam; eos does not count."""
        rows = self._attention(self._path(parent), parent)
        received_S = np.zeros(len(self.sentence.source))
        for attention_S in rows[:-1] if ended else rows:
            received_S += attention_S
        return float(np.log(np.clip(received_S, 1e-9, 1.0)).sum())
