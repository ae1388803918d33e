"""What changes a distribution before it is searched: penalties, forbidden tokens, and the choice of
the best continuations. Pure functions on logits of one sentence.

Shape letters: K beams, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.arrays import Floats, Int32s

Best = tuple[Floats, Int32s, Int32s]
"""Cumulative score, token and parent beam of one sentence's best continuations, each [N], best
first."""


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
    """Forbid the ids that end a hypothesis, so that it goes on."""
    logits_V[list(ends)] = -np.inf


def log_softmax(logits_KV: Floats) -> Floats:
    """Row-wise log-softmax in fp32; a row where all is forbidden stays -inf."""
    highest = logits_KV.max(axis=-1, keepdims=True)
    shifted = logits_KV - np.where(highest == -np.inf, np.float32(0), highest)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.where(total == 0, np.float32(1), total))
    return result


def best_continuations(log_probs_KV: Floats, scores_K: Floats, count: int) -> Best:
    """The `count` best continuations of all beams; ties go to the lower beam and token."""
    total = (log_probs_KV + scores_K[:, None]).ravel()
    count = min(count, total.size)
    kept = np.argpartition(-total, count - 1)[:count]
    threshold = total[kept].min()
    # argpartition breaks ties anyhow: take all above the threshold, then the first equal ones.
    above = np.flatnonzero(total > threshold)
    equal = np.flatnonzero(total == threshold)[: count - above.size]
    kept = np.concatenate([above, equal])
    kept = kept[np.lexsort((kept, -total[kept]))]
    parents, tokens = np.divmod(kept, log_probs_KV.shape[1])
    return total[kept], tokens.astype(np.int32), parents.astype(np.int32)
