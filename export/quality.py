"""Whether a change in BLEU is more than noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

RESAMPLES = 1000


@dataclass(frozen=True)
class BleuChange:
    """BLEU of a system less BLEU of the reference system."""

    mean: float
    low: float
    high: float
    """95 % interval of the paired bootstrap (Koehn 2004)."""


def bleu_change(before: list[str], after: list[str], references: list[str]) -> BleuChange:
    """The change in corpus BLEU from `before` to `after`; positive is better."""
    counts = np.stack([_counts(before, references), _counts(after, references)])
    generator = np.random.default_rng(12345)
    size = len(references)
    changes = []
    for _ in range(RESAMPLES):
        drawn = generator.integers(0, size, size)
        old, new = (_score(system[drawn].sum(axis=0)) for system in counts)
        changes.append(new - old)
    old, new = (_score(system.sum(axis=0)) for system in counts)
    low, high = np.percentile(changes, [2.5, 97.5])
    return BleuChange(new - old, float(low), float(high))


def _counts(translations: list[str], references: list[str]) -> NDArray[np.int64]:
    """Matches (4), n-grams (4), and both lengths of each sentence."""
    metric = BLEU(effective_order=True)
    rows = []
    for translation, reference in zip(translations, references, strict=True):
        score = metric.sentence_score(translation, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64)


def _score(sums: NDArray[np.int64]) -> float:
    values = [int(value) for value in sums]
    return float(BLEU.compute_bleu(values[:4], values[4:8], values[8], values[9]).score)
