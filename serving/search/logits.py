"""Changes to a distribution before the search: penalties, forbidden tokens, and the choice of the
best continuations. Pure functions on the logits of one sentence.

Shape letters: K beams, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.arrays import Floats, Int32s, Ints

Best = tuple[Floats, Int32s, Int32s]
"""Cumulative score, token and parent beam of one sentence's best continuations, each [N], best
first."""
_GROUP = 64
"""Size of the groups whose maxima are computed first."""


def penalise_repetition(logits_V: Floats, history: Sequence[int], penalty: float) -> None:
    """Divide positive and multiply negative logits of tokens already used (Keskar et al. 2019)."""
    used = np.unique(np.asarray(history, dtype=np.int64))
    values = logits_V[used]
    logits_V[used] = np.where(values > 0, values / penalty, values * penalty)


def forbid_repeated_ngrams(logits_V: Floats, history: Sequence[int], size: int) -> None:
    """Forbid tokens that would complete an n-gram which the history already holds."""
    if len(history) < size:
        return
    head = tuple(history[len(history) - size + 1 :])
    for start in range(len(history) - size + 1):
        if tuple(history[start : start + size - 1]) == head:
            logits_V[history[start + size - 1]] = -np.inf


def forbid_ends(logits_V: Floats, ends: Sequence[int]) -> None:
    """Forbid the ids that end a hypothesis, so that it continues."""
    logits_V[list(ends)] = -np.inf


def log_softmax(logits_KV: Floats) -> Floats:
    """Row-wise log-softmax in fp32; a row in which everything is forbidden stays -inf."""
    highest = logits_KV.max(axis=-1, keepdims=True)
    shifted = logits_KV - np.where(highest == -np.inf, np.float32(0), highest)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.where(total == 0, np.float32(1), total))
    return result


def best_continuations(log_probs_KV: Floats, scores_K: Floats, count: int) -> Best:
    """The `count` best continuations of all beams; ties go to the lower beam and token."""
    total = (log_probs_KV + scores_K[:, None]).ravel()
    places = _contenders(total, count)
    kept = places[np.lexsort((places, -total[places]))[:count]]
    parents, tokens = np.divmod(kept, log_probs_KV.shape[1])
    return total[kept], tokens.astype(np.int32), parents.astype(np.int32)


def _contenders(total: Floats, count: int) -> Ints:
    """Places of a few values, among them the `count` highest and all that equal one of those.

    It computes the maximum of each group of values. Values below the `count`-th of these maxima are
    not among the best. This takes a tenth of the time of partitioning all values.
    """
    groups = total.size // _GROUP
    if groups < count:
        return np.arange(total.size)
    highest = total[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    return np.flatnonzero(total >= np.partition(highest, -count)[-count])
