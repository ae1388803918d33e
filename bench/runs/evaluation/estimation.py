"""Measures how well the probability of a translation separates good translations from poor ones.

A translation is good if its chrF2 reaches the threshold of the model's calibration.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from bench.errors import BenchError
from export.bundles.probability import GOOD_CHRF, expected_error
from serving.arrays import Doubles
from serving.translation.translator import ModelTranslator
from training.corpora.pairs import Pair

_CHUNK = 64
"""Sentences between two progress reports."""


@dataclass(frozen=True)
class EstimationResult:
    """The results of one text in one direction."""

    name: str
    sentences: int
    good: float
    """Share of the model's translations that are good by chrF2."""
    auc: float
    """Area under the ROC curve: the probability that a good translation of the model has a higher
    probability than a poor one."""
    auc_median: float
    """The same if the better half by chrF2 counts as good."""
    mean_probability: float
    expected_error: float
    """Expected calibration error, over ten bins."""
    brier: float
    forced_gap: float
    """Mean difference between the probability of a translation in its own search and when scored as
    a given translation."""
    others: float
    """Share of references that are likelier than the reference of another sentence."""
    left_out: float
    """Share of references that are likelier than the same text with one word removed."""
    swapped: float
    """Share of references that are likelier than the same text with two neighbouring words
    swapped."""
    reference_probability: float
    """Mean probability of the references, which are worded differently from the model's output."""


def measure_estimation(
    translator: ModelTranslator,
    languages: tuple[str, str],
    name: str,
    pairs: Sequence[Pair],
    seed: int,
    progress: Callable[[str], None],
) -> EstimationResult:
    """Translate a text, and score the translations, the references, and damaged references. Raises
    BenchError for a bundle without a calibration, and for a text whose translations are all good or
    all poor."""
    source, target = languages
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    draw, metric = random.Random(seed), CHRF()
    outputs, found = [], []
    for start in range(0, len(pairs), _CHUNK):
        part = sources[start : start + _CHUNK]
        for each in translator.translate_sentences(part, source=source, target=target):
            best = each.hypotheses[0] if each.hypotheses else None
            outputs.append(each.text)
            found.append((best and best.probability) or 0.0)
        progress(f"{name}: {len(outputs)} of {len(pairs)} sentences")
    chrf = np.array(
        [metric.sentence_score(o, [r]).score for o, r in zip(outputs, references, strict=True)]
    )
    good, probability = (chrf >= GOOD_CHRF).astype(float), np.array(found)
    if translator.manifest.calibration is None or not 0 < good.mean() < 1:
        raise BenchError(
            f"{name}: needs a calibrated bundle, and a text of which some is translated well and "
            f"some is not, got {good.mean():.0%} good; calibrate it with `python -m macaron "
            "export calibrate`"
        )

    def given(translations: Sequence[str]) -> Doubles:
        return _probabilities(translator, languages, sources, translations)

    forced, right = given(outputs), given(references)
    shuffled = references[1:] + references[:1]
    return EstimationResult(
        name=name,
        sentences=len(pairs),
        good=float(good.mean()),
        auc=auc(probability, good),
        auc_median=auc(probability, (chrf > np.median(chrf)).astype(float)),
        mean_probability=float(probability.mean()),
        expected_error=expected_error(probability, good),
        brier=float(np.mean((probability - good) ** 2)),
        forced_gap=float(np.abs(forced - probability).mean()),
        others=_wins(right, given(shuffled), references, shuffled),
        left_out=_worse(given, right, references, lambda words: _left_out(words, draw)),
        swapped=_worse(given, right, references, lambda words: _swapped(words, draw)),
        reference_probability=float(right.mean()),
    )


def auc(scores: Doubles, good: Doubles) -> float:
    """Area under the receiver operating characteristic: the share of pairs in which the good one
    has the higher score; ties count half."""
    ordered = np.sort(scores[good == 0])
    higher = scores[good == 1]
    below = np.searchsorted(ordered, higher, "left") + np.searchsorted(ordered, higher, "right")
    return float(below.mean() / 2 / len(ordered))


def estimation_markdown(languages: str, results: Sequence[EstimationResult]) -> str:
    """Format two tables with a row for each text: results on the model's own translations, and on
    given ones."""
    own = [
        f"| {languages} | sentences | good | mean probability | AUC | AUC, better half "
        "| calibration error | Brier score |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {r.name} | {r.sentences} | {100 * r.good:.1f} % | {r.mean_probability:.3f} "
            f"| {r.auc:.3f} | {r.auc_median:.3f} | {r.expected_error:.3f} | {r.brier:.3f} |"
            for r in results
        ),
    ]
    given = [
        f"| {languages}, given | mean of references | distance from its own search "
        "| another sentence's | a word left out | two words swapped |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {r.name} | {r.reference_probability:.3f} | {r.forced_gap:.3f} "
            f"| {100 * r.others:.1f} % | {100 * r.left_out:.1f} % | {100 * r.swapped:.1f} % |"
            for r in results
        ),
    ]
    return "\n".join([*own, "", *given])


def _probabilities(
    translator: ModelTranslator,
    languages: tuple[str, str],
    sources: Sequence[str],
    translations: Sequence[str],
) -> Doubles:
    """The probability of each given translation."""
    calibration, options = translator.manifest.calibration, translator.default_options
    assert calibration is not None
    pairs = list(zip(sources, translations, strict=True))
    scores = translator.score(pairs, source=languages[0], target=languages[1])
    return np.array(
        [
            calibration.probability(options.score(s.cumulative, len(s.tokens), ended=True))
            for s in scores
        ]
    )


def _worse(
    given: Callable[[Sequence[str]], Doubles],
    right: Doubles,
    references: Sequence[str],
    change: Callable[[list[str]], list[str]],
) -> float:
    """Share of references that are likelier than the same text after `change` is applied to its
    words."""
    changed = [" ".join(change(reference.split())) for reference in references]
    return _wins(right, given(changed), references, changed)


def _wins(
    right: Doubles, wrong: Doubles, references: Sequence[str], changed: Sequence[str]
) -> float:
    """Share of pairs with different texts in which the correct text is likelier."""
    differ = np.array([a != b for a, b in zip(references, changed, strict=True)])
    return float((right > wrong)[differ].mean())


def _left_out(words: list[str], draw: random.Random) -> list[str]:
    place = draw.randrange(len(words))
    return words[:place] + words[place + 1 :] if len(words) > 1 else words


def _swapped(words: list[str], draw: random.Random) -> list[str]:
    if len(words) < 2:
        return words
    place = draw.randrange(len(words) - 1)
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
