"""The paired bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from export.comparison.significance import bleu_change, mean_bleu_change
from training.metrics.bleu import measure_quality

REFERENCES = [f"the number {n} follows the number {n - 1} in this text" for n in range(1, 31)]
WORSE = [text.replace("follows", "is") if i % 3 else text for i, text in enumerate(REFERENCES)]
WORST = [text.replace("number", "figure") if i % 2 else text for i, text in enumerate(REFERENCES)]


def test_the_mean_is_that_of_the_whole_text() -> None:
    found = bleu_change(WORST, WORSE, REFERENCES)
    expected = measure_quality(WORSE, REFERENCES).bleu - measure_quality(WORST, REFERENCES).bleu
    assert found.mean == pytest.approx(expected)
    assert found.low < found.mean < found.high


def test_several_pairs_share_their_draws() -> None:
    one = bleu_change(WORSE, REFERENCES, REFERENCES)
    assert mean_bleu_change([(WORSE, REFERENCES)] * 3, REFERENCES) == pytest.approx(one)
    # A change and its opposite cancel in every resample, which they would not with draws apart.
    found = mean_bleu_change([(WORSE, WORST), (WORST, WORSE)], REFERENCES)
    assert (found.mean, found.low, found.high) == pytest.approx((0, 0, 0), abs=1e-9)


def test_the_interval_is_that_of_resampled_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.comparison.significance.RESAMPLES", 40)
    pairs = [(WORSE, REFERENCES), (WORST, WORSE)]
    generator = np.random.default_rng(12345)
    changes = []
    for _ in range(40):
        rows = generator.integers(0, 30, 30)
        drawn = [
            measure_quality([text[i] for i in rows], [REFERENCES[i] for i in rows]).bleu
            for text in (WORSE, WORST, REFERENCES)
        ]
        changes.append((drawn[2] - drawn[0] + drawn[0] - drawn[1]) / 2)
    found = mean_bleu_change(pairs, REFERENCES)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(changes, [2.5, 97.5])))
