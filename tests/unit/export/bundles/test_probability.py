"""The curve from scores to probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from export.bundles.probability import expected_error, fit, logistic
from export.errors import ExportError


def drawn(count: int, slope: float, intercept: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    scores = -generator.exponential(0.7, count)
    chance = 1 / (1 + np.exp(-(slope * scores + intercept)))
    return scores, (generator.random(count) < chance).astype(float)


def test_the_fit_is_that_of_greatest_likelihood() -> None:
    scores, good = drawn(800, 4.0, 1.5)

    def loss(weights: np.ndarray) -> float:
        signed = np.where(good > 0, 1, -1) * (weights[0] * scores + weights[1])
        return float(np.logaddexp(0, -signed).sum())

    assert logistic(scores, good) == pytest.approx(minimize(loss, np.zeros(2)).x, rel=1e-3)


def test_figures_are_those_of_the_held_out_half() -> None:
    scores, good = drawn(4000, 5.0, 2.0)
    curve = fit(scores, good, "made up")
    assert (curve.slope, curve.intercept) == pytest.approx((5.0, 2.0), rel=0.15)
    assert (curve.pairs, curve.held_out_pairs) == (2000, 2000)
    chance = [1 / (1 + math.exp(-(curve.slope * s + curve.intercept))) for s in scores[1::2]]
    assert [curve.probability(s) for s in scores[1::2]] == pytest.approx(chance)
    assert curve.brier == pytest.approx(np.mean((np.array(chance) - good[1::2]) ** 2), abs=1e-4)
    assert curve.brier < curve.held_out_rate * (1 - curve.held_out_rate)
    assert curve.expected_error < 0.04
    assert curve.probability(-1e9) == 0.0
    assert curve.probability(1e9) == 1.0


def test_expected_error_by_hand() -> None:
    probabilities = np.array([0.05, 0.09, 0.55, 1.0])
    good = np.array([0.0, 1.0, 1.0, 1.0])
    assert expected_error(probabilities, good) == pytest.approx((0.86 + 0.45 + 0.0) / 4)


@pytest.mark.parametrize(("count", "value"), [(99, 0.5), (400, 0.0), (400, 1.0)])
def test_texts_that_tell_nothing_are_refused(count: int, value: float) -> None:
    scores, good = drawn(count, 4.0, 1.5)
    with pytest.raises(ExportError, match="needs at least 100 pairs, some translated well"):
        fit(scores, good if value == 0.5 else np.full(count, value), "made up")
