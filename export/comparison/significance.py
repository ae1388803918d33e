"""Significance of a change in BLEU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

RESAMPLES = 1000


@dataclass(frozen=True)
class BleuChange:
    """BLEU of a system minus BLEU of the reference system."""

    mean: float
    low: float
    high: float
    """95 % interval of the paired bootstrap (Koehn 2004)."""


def bleu_change(before: list[str], after: list[str], references: list[str]) -> BleuChange:
    """The change in corpus BLEU from `before` to `after`; positive is better."""
    return mean_bleu_change([(before, after)], references)


def mean_bleu_change(
    pairs: Sequence[tuple[list[str], list[str]]], references: list[str]
) -> BleuChange:
    """The mean change over pairs (before, after), for two systems trained with several seeds.

    A resample draws the same sentences for all pairs, so the interval covers the choice of
    sentences, not that of seeds.
    """
    counts = [[_counts(texts, references) for texts in pair] for pair in pairs]

    def change(drawn: slice | NDArray[np.int64]) -> float:
        return statistics.fmean(
            _score(after[drawn].sum(axis=0)) - _score(before[drawn].sum(axis=0))
            for before, after in counts
        )

    generator = np.random.default_rng(12345)
    size = len(references)
    changes = [change(generator.integers(0, size, size)) for _ in range(RESAMPLES)]
    low, high = np.percentile(changes, [2.5, 97.5])
    return BleuChange(change(slice(None)), float(low), float(high))


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
