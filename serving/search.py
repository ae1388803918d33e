"""Beam search over any model behind the `Stepper` protocol; greedy search is beam_size 1.

Shape letters: B sentences, K beams, P prefix tokens, S source ids, C cache slots, V vocabulary,
D model, N candidates.

The rules are CTranslate2's: 2K candidates a step; only an end candidate ranked among the first K
finishes a hypothesis, and the next best candidate that does not end takes its beam; a sentence
stops at round(beam_size * patience) finished hypotheses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.cache import PrefixTree, Repack
from serving.constraints import (
    best_continuations,
    forbid_end,
    forbid_repeated_ngrams,
    log_softmax,
    penalise_repetition,
)
from serving.errors import DecodingError
from serving.options import SearchOptions
from serving.tokenizer import BOS_ID, EOS_ID

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StepInputs:
    """One call of the step graph."""

    token_ids_BK: Ints
    positions_BK: Ints
    write_index_B: Ints
    visible_BKC: Floats
    """0 where query k may see slot c, -inf elsewhere."""
    scores_BK: Floats
    """Cumulative log-probabilities; -inf for a dead beam."""


@dataclass(frozen=True)
class StepOutputs:
    """The best continuations of each sentence, best first; the next step may reuse the arrays."""

    scores_BN: Floats
    tokens_BN: NDArray[np.int32]
    parents_BN: NDArray[np.int32]
    logits_BKV: Floats | None = None
    attention_BKS: Floats | None = None
    """Source attention of one layer, mean over heads."""


class Stepper(Protocol):
    """A model with its caches; the state is its own business.

    `encode` takes sources that end with eos. `prefill` fills the caches with right-padded tokens
    and gives the log-probability of each label. `repack` drops rows and cache slots. Nothing is
    ever reordered.
    """

    def encode(self, sources: Sequence[Sequence[int]]) -> Any: ...

    def prefill(self, state: Any, token_ids_BP: Ints, labels_BP: Ints) -> Floats: ...

    def step(
        self, state: Any, inputs: StepInputs, *, want_logits: bool, want_attention: bool
    ) -> StepOutputs: ...

    def repack(self, state: Any, repack: Repack) -> None: ...

    def free(self, state: Any) -> None: ...


@dataclass(frozen=True)
class Sentence:
    """One sentence to decode: source ids with eos, and how."""

    source: Sequence[int]
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: Sequence[int] = ()


@dataclass(frozen=True)
class Hypothesis:
    """One output: ids without bos and eos, the forced prefix included."""

    tokens: tuple[int, ...]
    score: float
    """Normalised score, see `SearchOptions.score`."""
    cumulative: float
    """Sum of log-probabilities of the generated tokens, eos included, the prefix not."""
    token_scores: tuple[float, ...]
    """Log-probability of each prefix and generated token, and of eos where it was reached."""
    finished: bool
    """Ended with eos rather than at max_length."""


@dataclass(frozen=True)
class Finished:
    """A sentence that has left the batch."""

    index: int
    hypotheses: tuple[Hypothesis, ...] = ()
    error: DecodingError | None = None
    peak_slots: int = 0


class BeamSearch:
    """A running batch of sentences of one beam size; `step` until it is no longer `live`."""

    def __init__(self, stepper: Stepper, sentences: Sequence[Sentence]) -> None:
        sizes = {sentence.options.beam_size for sentence in sentences}
        if len(sizes) != 1:
            raise ValueError(f"sentences of one batch must share beam_size, got {sorted(sizes)}")
        self._stepper, self._beam_size = stepper, sizes.pop()
        self._state = stepper.encode([sentence.source for sentence in sentences])
        self._rows = [_Row(i, sentence) for i, sentence in enumerate(sentences)]
        self._tree = PrefixTree(self._prefill(), self._beam_size)
        shape = (len(sentences), self._beam_size)
        last = [[BOS_ID, *s.target_prefix][-1] for s in sentences]
        self._tokens = np.repeat(np.array(last, dtype=np.int64)[:, None], shape[1], axis=1)
        self._scores = np.full(shape, -np.inf, dtype=np.float32)
        self._scores[:, 0] = 0.0
        self._live = np.ones(shape[0], dtype=np.int64)  # queries up to the last real one
        self._want_attention = any(s.options.coverage_penalty for s in sentences)

    @property
    def live(self) -> bool:
        """Whether any sentence is still being decoded."""
        return any(row.live for row in self._rows)

    def cancel(self, index: int) -> None:
        """Drop a sentence without a result."""
        for number, row in enumerate(self._rows):
            if row.index == index and row.live:
                self._retire(number)

    def step(self) -> list[Finished]:
        """Generate one token of every live sentence; returns those that are done."""
        constrained = [n for n, row in enumerate(self._rows) if row.live and row.constrained]
        outputs = self._stepper.step(
            self._state,
            StepInputs(
                token_ids_BK=self._tokens,
                positions_BK=np.repeat(self._positions(), self._beam_size, axis=1),
                write_index_B=self._tree.write(),
                visible_BKC=self._tree.visible,
                scores_BK=self._scores,
            ),
            want_logits=bool(constrained),
            want_attention=self._want_attention,
        )
        scores, tokens, parents = (
            outputs.scores_BN.copy(),
            outputs.tokens_BN.astype(np.int64),
            outputs.parents_BN.astype(np.int64),
        )
        for number in constrained:
            assert outputs.logits_BKV is not None
            self._constrain(number, outputs.logits_BKV[number], scores, tokens, parents)
        finished = self._advance(scores, tokens, parents, outputs.attention_BKS)
        self._repack()
        return finished

    def _positions(self) -> Ints:
        """Position of each sentence's next token, [B,1]; 0 where a row is idle."""
        return np.array([[row.position if row.live else 0] for row in self._rows], dtype=np.int64)

    def _prefill(self) -> Ints:
        """Put bos and all but the last prefix token into the caches; returns the slots used.

        The last token goes through the first ordinary step, which yields the candidates.
        """
        prefixes = [row.sentence.target_prefix for row in self._rows]
        longest = max(map(len, prefixes))
        if longest:
            token_ids = np.zeros((len(prefixes), longest), dtype=np.int64)
            labels = np.zeros_like(token_ids)
            for number, prefix in enumerate(prefixes):
                token_ids[number, : len(prefix)] = [BOS_ID, *prefix][: len(prefix)]
                labels[number, : len(prefix)] = prefix
            scores = self._stepper.prefill(self._state, token_ids, labels)
            for number, prefix in enumerate(prefixes):
                self._rows[number].prefix_scores = scores[number, : len(prefix)].tolist()
        return np.array([len(prefix) for prefix in prefixes], dtype=np.int64)

    def _constrain(
        self, number: int, logits_KV: Floats, scores: Floats, tokens: Ints, parents: Ints
    ) -> None:
        """Replace one sentence's candidates by those of its edited distribution."""
        row = self._rows[number]
        logits_KV = logits_KV.copy()
        for beam in range(int(self._live[number])):
            row.edit(logits_KV[beam], beam)
        count = scores.shape[1]
        best = best_continuations(log_softmax(logits_KV), self._scores[number], count)
        scores[number, :], tokens[number, :], parents[number, :] = -np.inf, 0, 0
        for target, values in zip((scores, tokens, parents), best, strict=True):
            target[number, : len(values)] = values

    def _advance(
        self, scores_BN: Floats, tokens_BN: Ints, parents_BN: Ints, attention: Floats | None
    ) -> list[Finished]:
        """Choose the next beams, collect finished hypotheses, retire finished sentences."""
        beam_size = self._beam_size
        chosen_BK = np.tile(np.arange(beam_size), (len(self._rows), 1))
        ends_BN = (tokens_BN == EOS_ID) & np.isfinite(scores_BN)
        broken = np.isnan(scores_BN).any(axis=1) | ~np.isfinite(scores_BN[:, 0])
        finished = []
        for number, row in enumerate(self._rows):
            if not row.live:
                continue
            if broken[number]:
                error = DecodingError("the model gave a non-finite score for this sentence")
                finished.append(Finished(row.index, error=error))
                self._retire(number)
                continue
            row.record(
                scores_BN[number],
                tokens_BN[number],
                parents_BN[number],
                None if attention is None else attention[number].copy(),
            )
            last_step = row.is_last_step
            if last_step or ends_BN[number, :beam_size].any():
                chosen_BK[number] = row.finish(
                    scores_BN[number], ends_BN[number], beam_size, last_step=last_step
                )
            row.choose(chosen_BK[number])
            if row.is_done(last_step=last_step):
                peak = int(self._tree.peak[number])
                finished.append(Finished(row.index, row.results(), peak_slots=peak))
                self._retire(number)
        self._move(scores_BN, tokens_BN, parents_BN, chosen_BK)
        return finished

    def _move(
        self, scores_BN: Floats, tokens_BN: Ints, parents_BN: Ints, chosen_BK: Ints
    ) -> None:
        def take(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values, np.maximum(chosen_BK, 0), axis=1)

        dead_BK = chosen_BK < 0
        self._tokens = take(tokens_BN)
        self._scores = np.where(dead_BK, np.float32(-np.inf), take(scores_BN))
        live = np.array([row.live for row in self._rows])
        self._scores[~live] = -np.inf
        self._tokens[~live] = 0
        parents_BK = np.where(live[:, None], take(parents_BN), 0)
        self._tree.advance(parents_BK, np.where(live, self._live, 0))
        # A dead beam may stand between live ones: the slots up to the last live one are in use.
        self._live = (np.isfinite(self._scores) * np.arange(1, self._beam_size + 1)).max(axis=1)

    def _retire(self, number: int) -> None:
        self._rows[number].live = False
        self._tree.clear(number)

    def _repack(self) -> None:
        """Drop dead slots where due, and idle rows when more than a quarter are idle."""
        live = np.array([row.live for row in self._rows])
        if not live.any():
            self._stepper.free(self._state)
            return
        rows = np.arange(len(live))
        if (~live).sum() * 4 > len(live):
            rows = np.flatnonzero(live)
        repack = self._tree.repack(rows)
        if repack is None:
            return
        self._stepper.repack(self._state, repack)
        self._rows = [self._rows[n] for n in rows]
        self._tokens, self._scores = self._tokens[rows], self._scores[rows]
        self._live = self._live[rows]


class _Row:
    """What one sentence has generated: a tree of candidates, and its finished hypotheses."""

    def __init__(self, index: int, sentence: Sentence) -> None:
        self.index, self.sentence, self.options = index, sentence, sentence.options
        self.live = True
        self.prefix_scores: list[float] = []
        self._steps: list[tuple[Ints, Ints, Floats]] = []  # tokens, parents, scores of the beams
        self._candidates: tuple[Ints, Ints, Floats] | None = None
        self._attention: list[Floats] = []
        self._finished: list[Hypothesis] = []
        self._top_finished = False
        self._max_steps = self.options.max_steps(len(sentence.source))

    @property
    def position(self) -> int:
        """Position of the token that the next step reads."""
        return len(self.sentence.target_prefix) + len(self._steps)

    @property
    def is_last_step(self) -> bool:
        """Whether the candidates just recorded are the last allowed."""
        return len(self._steps) + 1 == self._max_steps

    @property
    def constrained(self) -> bool:
        """Whether the next step needs this sentence's whole distribution."""
        options = self.options
        return (
            options.repetition_penalty != 1.0
            or options.no_repeat_ngram_size > 0
            or len(self._steps) < options.min_length
        )

    def edit(self, logits_V: Floats, beam: int) -> None:
        """Apply the constraints to the logits of one beam."""
        options = self.options
        history = [*self.sentence.target_prefix, *self._tokens(beam)]
        if options.repetition_penalty != 1.0 and history:
            penalise_repetition(logits_V, history, options.repetition_penalty)
        if options.no_repeat_ngram_size:
            forbid_repeated_ngrams(logits_V, history, options.no_repeat_ngram_size)
        if len(self._steps) < options.min_length:
            forbid_end(logits_V)

    def record(
        self, scores_N: Floats, tokens_N: Ints, parents_N: Ints, attention_KS: Floats | None
    ) -> None:
        """Keep the step's candidates until `choose`."""
        self._candidates = (tokens_N, parents_N, scores_N)
        if attention_KS is not None:
            self._attention.append(attention_KS)

    def finish(
        self, scores_N: Floats, ends_N: NDArray[np.bool_], beam_size: int, *, last_step: bool
    ) -> Ints:
        """Collect hypotheses that end now; returns the candidate of each beam, -1 where none."""
        chosen = np.arange(beam_size)
        chosen[~np.isfinite(scores_N[:beam_size])] = -1
        spare = beam_size
        for beam in range(beam_size):
            if chosen[beam] < 0 or not (ends_N[beam] or last_step):
                continue
            self._top_finished |= beam == 0
            self._finished.append(self._hypothesis(beam, ended=bool(ends_N[beam])))
            while spare < len(ends_N) and (ends_N[spare] or not np.isfinite(scores_N[spare])):
                spare += 1
            chosen[beam] = spare if spare < len(ends_N) else -1
            spare += 1
        return chosen

    def choose(self, chosen_K: Ints) -> None:
        """The chosen candidates become the beams."""
        assert self._candidates is not None
        tokens, parents, scores = self._candidates
        kept = np.maximum(chosen_K, 0)
        self._steps.append((tokens[kept], parents[kept], scores[kept]))

    def is_done(self, *, last_step: bool) -> bool:
        """Whether the sentence has all the hypotheses it needs."""
        options = self.options
        if last_step or len(self._finished) >= options.max_finished:
            return True
        return (
            options.deterministic_early_exit
            and self._top_finished
            and len(self._finished) >= options.num_hypotheses
        )

    def results(self) -> tuple[Hypothesis, ...]:
        """Finished hypotheses, best first; equal scores keep their order of finishing."""
        ranked = sorted(self._finished, key=lambda hypothesis: -hypothesis.score)
        return tuple(ranked[: self.options.num_hypotheses])

    def _path(self, beam: int) -> Iterator[tuple[int, int]]:
        """(step, beam) from the newest chosen step back to the first."""
        for step in range(len(self._steps) - 1, -1, -1):
            yield step, beam
            beam = int(self._steps[step][1][beam])

    def _tokens(self, beam: int) -> list[int]:
        return [int(self._steps[step][0][b]) for step, b in self._path(beam)][::-1]

    def _hypothesis(self, candidate: int, *, ended: bool) -> Hypothesis:
        assert self._candidates is not None
        tokens_N, parents_N, scores_N = self._candidates
        parent = int(parents_N[candidate])
        path = [(step, beam) for step, beam in self._path(parent)][::-1]
        tokens = [int(self._steps[step][0][beam]) for step, beam in path]
        totals = [0.0, *(float(self._steps[step][2][beam]) for step, beam in path)]
        totals.append(float(scores_N[candidate]))
        if not ended:
            tokens.append(int(tokens_N[candidate]))
        token_scores = [after - before for before, after in zip(totals, totals[1:], strict=False)]
        coverage = self._coverage(path, parent) if self.options.coverage_penalty else 0.0
        return Hypothesis(
            tokens=(*self.sentence.target_prefix, *tokens),
            score=self.options.score(totals[-1], len(tokens), coverage),
            cumulative=totals[-1],
            token_scores=(*self.prefix_scores, *token_scores),
            finished=ended,
        )

    def _coverage(self, path: list[tuple[int, int]], parent: int) -> float:
        """Sum over source positions of log(min(attention received, 1))."""
        # Attention of step t belongs to the query that read the token chosen at step t - 1.
        queries = [*(int(self._steps[step][1][beam]) for step, beam in path), parent]
        received = sum(self._attention[t][q] for t, q in enumerate(queries))
        source = np.asarray(received)[: len(self.sentence.source)]
        return float(np.log(np.clip(source, 1e-9, 1.0)).sum())


def decode(stepper: Stepper, sentences: Sequence[Sentence]) -> list[Finished]:
    """Decode sentences of one beam size as one batch; results in input order."""
    search = BeamSearch(stepper, sentences)
    finished: list[Finished] = []
    while search.live:
        finished += search.step()
    return sorted(finished, key=lambda result: result.index)
