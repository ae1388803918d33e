"""Drawing tokens from a language model's distribution: pure functions on arrays.

Each row's token follows from its own numbers alone, so it is the same in any batch. Shape letters:
B rows, T likeliest tokens, V vocabulary.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.arrays import Bools, Doubles, Floats
from serving.search.logits import forbid_ends, forbid_repeated_ngrams, penalise_repetition
from serving.search.sampling_options import GenerationOptions

TOP = 64
"""The most tokens that a step lists, likeliest first."""
_FORBIDDEN = -100.0  # in the API that defines logit_bias, this value bans a token
_BLOCK = 256


class Uniforms:
    """The random numbers in [0, 1) of one output, by step: `uniforms[step]`.

    They come from a counter-based generator, keyed by the seed and the number of the choice
    (Philox, Salmon et al. 2011), so that any of them can be had without those before it.
    """

    def __init__(self, seed: int, choice: int) -> None:
        self._key = (seed % 2**64, choice)
        self._block: list[float] = []
        self._start = -_BLOCK

    def __getitem__(self, step: int) -> float:
        start = step - step % _BLOCK
        if start != self._start:
            bits = np.random.Philox(key=np.array(self._key, dtype=np.uint64), counter=start)
            self._block, self._start = np.random.Generator(bits).random(_BLOCK).tolist(), start
        return self._block[step - start]


def listed_tokens(options: GenerationOptions) -> int:
    """Number of the likeliest tokens that a draw considers: 1, 16 or `TOP`. There are only three
    values, so that outputs with different options usually share one shape of the step."""
    wanted = max(1, options.num_logprobs)
    if options.edits_logits:
        wanted = TOP
    elif not options.greedy:
        wanted = max(2, wanted, options.sampling_top_k or TOP)
    return next((count for count in (1, 16) if wanted <= count), TOP)


def never_needs_logits(options: GenerationOptions) -> bool:
    """Whether the number of tokens from `listed_tokens` suffices at every step."""
    return not options.edits_logits and (options.greedy or 0 < options.sampling_top_k <= TOP)


def needs_logits(options: GenerationOptions, top_scores_T: Floats, vocab_size: int) -> bool:
    """Whether a draw needs the whole distribution, because the listed tokens with these
    log-probabilities do not suffice."""
    if options.edits_logits:
        return True
    if options.greedy or top_scores_T.size == vocab_size:
        return False
    if options.sampling_top_k:
        return options.sampling_top_k > top_scores_T.size
    # With another temperature, the share of the tokens that are not listed is unknown.
    mass = float(np.exp(top_scores_T.astype(np.float64)).sum())
    return options.temperature != 1.0 or mass < options.sampling_top_p + 1e-6


@dataclass(frozen=True)
class Drawing:
    """The options of rows that are drawn together, as arrays. They are computed once for as long as
    the same rows are drawn together."""

    divisor_B1: Doubles | None
    """The temperatures; 1 for greedy rows. None if all are 1."""
    most: int
    """The highest top_k. No place after it is drawn."""
    kept_BT: Doubles | None
    """1 for the places within a row's top_k, 0 after them. None if all rows have the same top_k."""
    top_p_B: Doubles | None
    """The top_p of each row; None if all are 1."""
    of_all_B: Bools
    """Whether top_p is a share of all tokens, including those that are not listed."""

    @staticmethod
    def of(options: Sequence[GenerationOptions], listed: int) -> Drawing:
        """The arrays for rows with these options, if a step lists this many tokens."""
        greedy_B = np.array([o.greedy for o in options])
        temperature_B = np.where(greedy_B, 1.0, [o.temperature for o in options])
        top_k_B = np.array([1 if o.greedy else o.sampling_top_k or listed for o in options])
        top_p_B = np.array([o.sampling_top_p for o in options], dtype=np.float64)
        most = min(int(top_k_B.max()), listed)
        kept_BT = np.arange(most) < top_k_B[:, None]
        return Drawing(
            divisor_B1=temperature_B[:, None] if (temperature_B != 1.0).any() else None,
            most=most,
            kept_BT=None if kept_BT.all() else kept_BT.astype(np.float64),
            top_p_B=top_p_B if (top_p_B < 1.0).any() else None,
            of_all_B=np.array([o.sampling_top_k == 0 and o.temperature == 1 for o in options]),
        )


def draw_from_top(top_scores_BT: Floats, drawing: Drawing, uniform_B: Sequence[float]) -> list[int]:
    """Draw a place in each row of log-probabilities, which are sorted, best first.

    Only listed tokens are drawn. `uniform_B` are random numbers in [0, 1).
    """
    # The best is subtracted first: a very low temperature must not overflow.
    scores_BT = top_scores_BT[:, : drawing.most]
    weights_BT: Doubles = np.subtract(scores_BT, scores_BT[:, :1], dtype=np.float64)
    if drawing.divisor_B1 is not None:
        weights_BT /= drawing.divisor_B1
    np.exp(weights_BT, out=weights_BT)
    if drawing.kept_BT is not None:
        weights_BT *= drawing.kept_BT
    if drawing.top_p_B is not None:
        # Shares of all tokens if none was cut off: those of the listed ones may add up to less.
        best_B = top_scores_BT[:, 0].astype(np.float64)
        sums_BT = np.add.accumulate(weights_BT, axis=1)
        whole_B = np.where(drawing.of_all_B, np.exp(-best_B), sums_BT[:, -1])
        mass_B = np.where(drawing.top_p_B < 1.0, drawing.top_p_B * whole_B, np.inf)
        outside_BT = sums_BT - weights_BT >= mass_B[:, None]
        outside_BT[:, 0] = False  # the best, however small the share
        weights_BT[outside_BT] = 0.0
    rows = zip(weights_BT.tolist(), uniform_B, strict=True)
    return [_passed(list(itertools.accumulate(row)), uniform) for row, uniform in rows]


def draw_from_logits(logits_V: Floats, options: GenerationOptions, uniform: float) -> int:
    """Draw a token from one row's edited logits. Ties in top-k and top-p go to the lower id."""
    if options.greedy:
        return int(logits_V.argmax())
    logits = (logits_V.astype(np.float64) - logits_V.max()) / options.temperature
    tokens = np.arange(logits.size)
    if options.sampling_top_k or options.sampling_top_p < 1.0:
        tokens = np.argsort(-logits, kind="stable")[: options.sampling_top_k or None]
    weights = np.exp(logits[tokens])
    if options.sampling_top_p < 1.0:
        before = weights.cumsum() - weights
        count = max(1, int((before < options.sampling_top_p * weights.sum()).sum()))
        tokens, weights = tokens[:count], weights[:count]
    return int(tokens[_passed(np.add.accumulate(weights), uniform)])


def edit_logits(
    logits_V: Floats,
    prompt: Sequence[int],
    output: Sequence[int],
    options: GenerationOptions,
    ends: Sequence[int],
) -> None:
    """Apply penalties and bias in place. An id in `ends` that stands before a prompt does not count
    as used."""
    history = [*prompt[prompt[0] in ends :], *output]
    if options.repetition_penalty != 1.0 and history:
        penalise_repetition(logits_V, history, options.repetition_penalty)
    if output and (options.presence_penalty or options.frequency_penalty):
        used, counts = np.unique(np.asarray(output), return_counts=True)
        logits_V[used] -= np.float32(options.presence_penalty)
        logits_V[used] -= (options.frequency_penalty * counts).astype(np.float32)
    if options.no_repeat_ngram_size:
        forbid_repeated_ngrams(logits_V, history, options.no_repeat_ngram_size)
    if options.logit_bias:
        tokens, biases = options.bias_arrays
        logits_V[tokens] += np.where(biases <= _FORBIDDEN, -np.inf, biases).astype(np.float32)
    if len(output) < options.min_length:
        forbid_ends(logits_V, ends)


def _passed(sums: Sequence[float] | Doubles, uniform: float) -> int:
    """The place at which the running sum of the weights passes `uniform` times their total."""
    # That is less than the last sum: a product with a number below 1 is less even when rounded, so
    # some place passes it, and the first such place is not after the last weight.
    return bisect.bisect_right(sums, uniform * sums[-1])
