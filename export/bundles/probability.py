"""Calibrates the probability that a translation is good: a logistic curve over its score.

Scales of int8 products come from `export.arithmetic.activation_ranges`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from export.bundles.card import finish
from export.errors import ExportError
from export.texts.dev_set import Direction
from serving.arrays import Doubles
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Calibration, Manifest
from serving.threads import default_threads
from serving.translation.translator import Translator
from training.corpora.pairs import read_pairs

GOOD_CHRF = 60.0
"""Lowest sentence chrF2 of a translation that counts as good."""
_BINS = 10
_MIN_PAIRS = 100
_ROUNDS = 50


logger = logging.getLogger(__name__)


def calibrate_probability(
    bundle: Path,
    source: Path,
    reference: Path,
    data: str,
    languages: Direction = (None, None),
) -> Manifest:
    """Translate a text with a bundle, fit the curve on every other pair, measure it on the rest,
    and write the result into the manifest. `languages` is the direction of the text, for a bundle
    with several.

    Raises ExportError for a text that is too small, or whose translations are all good or all poor.
    """
    pairs = read_pairs(source, reference)
    translator = Translator(bundle, workers=default_threads())
    first, second = languages
    translations = translator.translate_sentences(
        [text for text, _ in pairs], source=first, target=second
    )
    metric, options = CHRF(), translator.default_options
    scores, good = [], []
    for translation, (_, wanted) in zip(translations, pairs, strict=True):
        if translation.hypotheses:
            best = translation.hypotheses[0]
            scores.append(options.score(best.cumulative, len(best.tokens), ended=best.finished))
            chrf = metric.sentence_score(translation.text, [wanted]).score
            good.append(float(chrf >= GOOD_CHRF))
    found = fit(np.array(scores), np.array(good), data)
    logger.info("%s: %s", data, found)
    finish(bundle, translator.manifest.model_copy(update={"calibration": found}))
    return read_manifest(bundle)


def fit(scores: Doubles, good: Doubles, data: str) -> Calibration:
    """Fit the curve on every other pair and measure it on the rest; raises ExportError."""
    fitted, held_out = slice(0, None, 2), slice(1, None, 2)
    if len(scores) < _MIN_PAIRS or not 0 < good[fitted].mean() < 1:
        raise ExportError(
            f"{data}: needs at least {_MIN_PAIRS} pairs, some translated well and some not (chrF2 "
            f"from {GOOD_CHRF:g} on), got {len(scores)} pairs, {good.mean():.0%} of them well"
        )
    slope, intercept = logistic(scores[fitted], good[fitted])
    curve = Calibration(
        event=f"sentence chrF2 >= {GOOD_CHRF:g}",
        slope=slope,
        intercept=intercept,
        data=data,
        pairs=len(scores[fitted]),
        held_out_pairs=len(scores[held_out]),
        held_out_rate=round(float(good[held_out].mean()), 4),
        brier=0.0,
        expected_error=0.0,
    )
    probabilities = np.array([curve.probability(score) for score in scores[held_out].tolist()])
    measured = {
        "brier": round(float(np.mean((probabilities - good[held_out]) ** 2)), 4),
        "expected_error": round(expected_error(probabilities, good[held_out]), 4),
    }
    return curve.model_copy(update=measured)


def logistic(scores: Doubles, good: Doubles) -> tuple[float, float]:
    """Maximum-likelihood slope and intercept, by Newton's method."""
    inputs_N2 = np.stack([scores, np.ones_like(scores)], axis=1)
    weights_2 = np.zeros(2)
    for _ in range(_ROUNDS):
        probability_N = 0.5 * (1 + np.tanh(inputs_N2 @ weights_2 / 2))
        gradient_2 = inputs_N2.T @ (good - probability_N)
        spread_N = np.maximum(probability_N * (1 - probability_N), 1e-9)
        step_2 = np.linalg.solve((inputs_N2.T * spread_N) @ inputs_N2, gradient_2)
        weights_2 += np.clip(step_2, -2.0, 2.0)
        if np.abs(step_2).max() < 1e-10:
            break
    return float(weights_2[0]), float(weights_2[1])


def expected_error(probabilities: Doubles, good: Doubles) -> float:
    """Expected calibration error: mean gap between probability and share of good ones, over bins of
    equal width (Naeini et al. 2015)."""
    bin_N = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(float(np.sum(probabilities[bin_N == number] - good[bin_N == number])))
        for number in range(_BINS)
    ]
    return sum(gaps) / len(good)
