"""Beam search written plainly, one sentence at a time: what `serving.search.beams.beam` must equal.

It follows CTranslate2's rules and shares no code with the engine but `SearchOptions`' fields.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from serving.arrays import Floats
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from tests.unit.serving.search.fake_stepper import FakeModel


class NextScores(Protocol):
    """A model with a cache that is reordered, or without any."""

    def logits(self, parents: list[int], tokens: list[int]) -> Floats:
        """[n,V] for n beams, where beam i adds `tokens[i]` to what was beam `parents[i]`."""
        ...

    def attention(self) -> Floats:
        """Source attention of the last call, [n,S]."""
        ...


class FakeScores:
    """The fake model on whole histories."""

    def __init__(self, model: FakeModel, source: Sequence[int]) -> None:
        self._model, self._source = model, tuple(source)
        self._histories: list[tuple[int, ...]] = [()]

    def logits(self, parents: list[int], tokens: list[int]) -> Floats:
        pairs = zip(parents, tokens, strict=True)
        self._histories = [(*self._histories[parent], token) for parent, token in pairs]
        slots = [tuple(enumerate(history)) for history in self._histories]
        return np.stack([self._model.logits(self._source, s) for s in slots])

    def attention(self) -> Floats:
        slots = [tuple(enumerate(history)) for history in self._histories]
        return np.stack([self._model.attention(self._source, s) for s in slots])


@dataclass(frozen=True)
class Beam:
    """A hypothesis under way: generated tokens, their log-probabilities, attention rows."""

    tokens: tuple[int, ...] = ()
    total: float | np.float32 = 0.0
    totals: tuple[float, ...] = (0.0,)
    attention: tuple[Floats, ...] = ()
    parent: int = 0


@dataclass(frozen=True)
class Result:
    """A finished hypothesis, in the engine's terms."""

    tokens: tuple[int, ...]
    score: float
    cumulative: float
    token_scores: tuple[float, ...]
    finished: bool


def plain_search(
    model: NextScores,
    options: SearchOptions,
    source_length: int,
    prefix: Sequence[int] = (),
) -> list[Result]:
    """The hypotheses of one sentence, best first."""
    beam_size = options.beam_size
    history, prefix_scores = [BOS_ID, *prefix], []
    for token, following in itertools.pairwise(history):
        prefix_scores.append(float(log_softmax(model.logits([0], [token])[0])[following]))
    beams, last_tokens, finished = [Beam()], [history[-1]], []
    top_finished = False
    max_length = options.max_length or min(256, 2 * source_length + 10)
    enough = max(1, math.floor(beam_size * options.patience + 0.5))
    for step in range(max_length):
        logits = model.logits([beam.parent for beam in beams], last_tokens).copy()
        rows = model.attention() if options.coverage_penalty else None
        candidates: list[Beam] = []
        for number, beam in enumerate(beams):
            edit(logits[number], [*prefix, *beam.tokens], len(beam.tokens), options)
            for token, log_prob in enumerate(log_softmax(logits[number])):
                total = np.float32(log_prob + beam.total)
                candidates.append(
                    Beam(
                        tokens=(*beam.tokens, token),
                        total=total,
                        totals=(*beam.totals, float(total)),
                        attention=beam.attention
                        if rows is None
                        else (*beam.attention, rows[number]),
                        parent=number,
                    )
                )
        candidates = [c for c in candidates if c.total > -np.inf]
        candidates.sort(key=lambda c: -c.total)
        candidates = candidates[: 2 * beam_size]
        first, spare = candidates[:beam_size], candidates[beam_size:]
        spare = [c for c in spare if c.tokens[-1] != EOS_ID]
        is_last, beams = step + 1 == max_length, []
        for rank, candidate in enumerate(first):
            if candidate.tokens[-1] == EOS_ID or is_last:
                top_finished |= rank == 0
                finished.append(result(candidate, options, source_length, prefix, prefix_scores))
                beams += [spare.pop(0)] if spare else []
            else:
                beams.append(candidate)
        if is_last or not beams:
            break
        if options.length_penalty == 0 and options.coverage_penalty == 0:
            if top_finished and len(finished) >= options.num_hypotheses:
                break
        elif len(finished) >= enough:
            break
        last_tokens = [beam.tokens[-1] for beam in beams]
    finished.sort(key=lambda hypothesis: -hypothesis.score)
    return finished[: options.num_hypotheses]


def edit(logits: Floats, history: list[int], generated: int, options: SearchOptions) -> None:
    """Repetition penalty, forbidden n-grams and min_length, token by token."""
    for token in set(history):
        value, penalty = logits[token], np.float32(options.repetition_penalty)
        logits[token] = value / penalty if value > 0 else value * penalty
    size = options.no_repeat_ngram_size
    if size:
        ngrams = {tuple(history[i : i + size]) for i in range(len(history) - size + 1)}
        for token in range(len(logits)):
            if tuple([*history, token][-size:]) in ngrams:
                logits[token] = -np.inf
    if generated < options.min_length:
        logits[EOS_ID] = -np.inf


def result(
    beam: Beam,
    options: SearchOptions,
    source_length: int,
    prefix: Sequence[int],
    prefix_scores: list[float],
) -> Result:
    """Finish a hypothesis: length normalisation and coverage."""
    ended = beam.tokens[-1] == EOS_ID
    words = beam.tokens[:-1] if ended else beam.tokens
    length = max(1, len(words) + (1 if options.eos_in_length and ended else 0))
    if options.length_penalty_form == "gnmt":
        score = (
            float(beam.total) / ((5 + length) ** options.length_penalty) * 6**options.length_penalty
        )
    else:
        score = float(beam.total) / length**options.length_penalty
    if options.coverage_penalty:
        received = [
            sum(float(row[j]) for row in beam.attention[: len(words)]) for j in range(source_length)
        ]
        logs = [math.log(min(max(amount, 1e-9), 1.0)) for amount in received]
        score += options.coverage_penalty * sum(logs)
    token_scores = (*prefix_scores, *differences(beam.totals))
    return Result((*prefix, *words), score, float(beam.total), token_scores, ended)


def differences(totals: Sequence[float]) -> list[float]:
    """Each total less the one before it."""
    return [after - before for before, after in itertools.pairwise(totals)]


def enumerate_all(
    model: FakeModel, source: Sequence[int], options: SearchOptions, prefix: Sequence[int] = ()
) -> list[Result]:
    """Every hypothesis of non-zero probability, best first: no beam at all."""
    assert options.max_length is not None
    prefix_options = replace(options, min_length=0)
    prefix_scores = differences(walk(model, source, prefix_options, (), list(prefix)).totals)
    alphabet = [t for t in range(model.vocab_size) if t not in (EOS_ID, *model.forbidden)]
    hypotheses = []
    for length in range(options.max_length + 1):
        ended = length < options.max_length
        if ended and length < options.min_length:
            continue
        for words in itertools.product(alphabet, repeat=length):
            beam = walk(model, source, options, prefix, [*words, EOS_ID] if ended else list(words))
            hypotheses.append(result(beam, options, len(source), prefix, prefix_scores))
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def walk(
    model: FakeModel,
    source: Sequence[int],
    options: SearchOptions,
    prefix: Sequence[int],
    words: list[int],
) -> Beam:
    """The given words as a beam."""
    beam, history = Beam(), [BOS_ID, *prefix]
    for word in words:
        slots = tuple(enumerate(history))
        logits = model.logits(tuple(source), slots).copy()
        if len(beam.tokens) < options.min_length:
            logits[EOS_ID] = -np.inf
        total = np.float32(beam.total + log_softmax(logits)[word])
        beam = Beam(
            tokens=(*beam.tokens, word),
            total=total,
            totals=(*beam.totals, float(total)),
            attention=(*beam.attention, model.attention(tuple(source), slots)),
        )
        history.append(word)
    return beam


def log_softmax(logits: Floats) -> Floats:
    """In fp64, so that it is not the engine's."""
    wide = logits.astype(np.float64)
    possible = wide > -np.inf
    out = np.full_like(wide, -np.inf)
    if possible.any():
        out[possible] = wide[possible] - np.logaddexp.reduce(wide[possible])
    return out.astype(np.float32)
