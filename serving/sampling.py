"""Drawing tokens from a language model's distribution: pure functions on arrays.

Each row's token follows from its own numbers alone, so it is the same in any batch. Shape letters:
B rows, T likeliest tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.constraints import forbid_end, forbid_repeated_ngrams, penalise_repetition
from serving.generation_options import LOWEST_TEMPERATURE, GenerationOptions
from serving.tokenizer import EOS_ID

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

TOP = 64
"""The most tokens that a step lists, likeliest first."""
_FORBIDDEN = -100.0  # the API that has logit_bias says that this bans a token
_BLOCK = 256


class Uniforms:
    """Numbers in [0, 1) of one output, by step: a counter-based generator keyed by the seed and the
    number of the choice (Philox, Salmon et al. 2011)."""

    def __init__(self, seed: int, choice: int) -> None:
        self._key = (seed % 2**64, choice)
        self._block: Doubles = np.zeros(0)
        self._start = -_BLOCK

    def __getitem__(self, step: int) -> float:
        start = step - step % _BLOCK
        if start != self._start:
            bits = np.random.Philox(key=np.array(self._key, dtype=np.uint64), counter=start)
            self._block, self._start = np.random.Generator(bits).random(_BLOCK), start
        return float(self._block[step - start])


def listed_tokens(options: GenerationOptions) -> int:
    """How many of the likeliest tokens a draw looks at: 1, 16 or `TOP`, few numbers on purpose."""
    wanted = max(1, options.num_logprobs)
    if options.edits_logits:
        wanted = TOP
    elif not options.greedy:
        wanted = max(2, wanted, options.sampling_top_k or TOP)
    return next((count for count in (1, 16) if wanted <= count), TOP)


def needs_logits(options: GenerationOptions, top_scores_T: Floats, vocab_size: int) -> bool:
    """Whether the likeliest tokens' log-probabilities do not suffice to draw from."""
    if options.edits_logits:
        return True
    if options.greedy or top_scores_T.size == vocab_size:
        return False
    if options.sampling_top_k:
        return options.sampling_top_k > top_scores_T.size
    # With another temperature, the share of the tokens that are not listed is unknown.
    mass = float(np.exp(top_scores_T.astype(np.float64)).sum())
    return options.temperature != 1.0 or mass < options.sampling_top_p + 1e-6


def draw_from_top(
    top_scores_BT: Floats,
    temperature_B: Doubles,
    top_k_B: NDArray[np.int64],
    top_p_B: Doubles,
    uniform_B: Doubles,
) -> NDArray[np.int64]:
    """Places in rows of log-probabilities, best first; the tokens that they lack are not drawn.

    Temperature 0 takes the first; top_k 0 is all of them.
    """
    count = top_scores_BT.shape[1]
    greedy_B = temperature_B < LOWEST_TEMPERATURE
    scores_BT = top_scores_BT.astype(np.float64)
    # The best is subtracted first: a very low temperature must not overflow.
    divisor_B1 = np.where(greedy_B, 1.0, temperature_B)[:, None]
    weights_BT = np.exp((scores_BT - scores_BT[:, :1]) / divisor_B1)
    kept_B = np.where(top_k_B == 0, count, np.minimum(top_k_B, count))
    weights_BT[np.arange(count) >= kept_B[:, None]] = 0.0
    nucleus_B = top_p_B < 1.0
    if nucleus_B.any():
        # Of all tokens where none was cut off: what is listed may be less than 1.
        whole_B = np.where(
            (top_k_B == 0) & (temperature_B == 1),
            np.exp(-scores_BT[:, 0]),
            weights_BT.sum(axis=1),
        )
        before_BT = weights_BT.cumsum(axis=1) - weights_BT
        mass_B = np.where(nucleus_B, top_p_B * whole_B, np.inf)
        weights_BT[before_BT >= mass_B[:, None]] = 0.0
        weights_BT[:, 0] = np.where(weights_BT[:, 0] > 0, weights_BT[:, 0], 1.0)
    places_B = _inverse(weights_BT, uniform_B)
    return np.where(greedy_B, 0, places_B)


def draw_from_logits(logits_V: Floats, options: GenerationOptions, uniform: float) -> int:
    """A token of one row's (edited) logits; ties in top-k and top-p go to the lower id."""
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
    return int(tokens[_inverse(weights[None], np.array([uniform]))[0]])


def edit_logits(
    logits_V: Floats, prompt: Sequence[int], output: Sequence[int], options: GenerationOptions
) -> None:
    """Apply penalties and bias, in place; the eos before a prompt does not count as used."""
    history = [*prompt[prompt[:1] == [EOS_ID] :], *output]
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
        forbid_end(logits_V)


def _inverse(weights_BT: Doubles, uniform_B: Doubles) -> NDArray[np.int64]:
    """The place of each row at which the running sum of weights passes uniform times their sum."""
    sums_BT = weights_BT.cumsum(axis=1)
    target_B = uniform_B * sums_BT[:, -1]
    places = (sums_BT <= target_B[:, None]).sum(axis=1)
    # Rounding may reach the end: the last place with a weight.
    last_B = weights_BT.shape[1] - 1 - (weights_BT[:, ::-1] > 0).argmax(axis=1)
    result: NDArray[np.int64] = np.minimum(places, last_B)
    return result
