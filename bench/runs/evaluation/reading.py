"""How well the probability of a translation agrees with a person who has read it.

A file has a line for each translation: the languages (`de-en`), the source, the translation that
was read, and `right`, `usable` (all is said, with a fault of form) or `wrong`, with tabs between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.errors import BenchError
from bench.runs.evaluation.estimation import auc
from export.bundles.probability import expected_error
from serving.arrays import Doubles
from serving.translation.translator import ModelTranslator

MARKS = ("right", "usable", "wrong")
_DRAWS = 1000
"""Samples, with replacement, that the intervals are of."""


class ReadTranslation(NamedTuple):
    """A translation that somebody has read."""

    languages: tuple[str, str]
    source: str
    translation: str
    mark: str


@dataclass(frozen=True)
class ReadingResult:
    """What a model's probability of translations is worth, by the marks of a reader."""

    name: str
    sentences: int
    changed: int
    """How many more the model now translates otherwise; they are left out."""
    right: float
    """Share of those that are right."""
    usable: float
    """Share of those that are right or usable."""
    auc_right: tuple[float, float, float]
    """How often a right one has the higher probability than another, and the interval of 95 %."""
    auc_usable: tuple[float, float, float]
    """How often one that is not wrong has the higher probability than a wrong one; likewise."""
    mean_probability: float | None
    """None, as the next two, for a bundle without a calibration."""
    error_right: float | None
    """Expected calibration error, if what is right is good."""
    error_usable: float | None
    """The same if what is usable is good, too."""


def read_marks(path: Path) -> list[ReadTranslation]:
    """The translations of a file; raises BenchError where it cannot be read, or has other lines."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--read {path}: cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        languages, *rest = line.split("\t")
        source, _, target = languages.partition("-")
        if len(rest) != 3 or not target or rest[2] not in MARKS:
            raise BenchError(
                f"{path}, line {number}: must be languages, source, translation and one of "
                f"{', '.join(MARKS)}, with tabs between, got {line[:80]!r}"
            )
        found.append(ReadTranslation((source, target), *rest))
    return found


def measure_reading(
    translator: ModelTranslator, every: Sequence[ReadTranslation], progress: Callable[[str], None]
) -> ReadingResult:
    """Compare the probabilities of a model, or its scores where it is not calibrated, with the
    marks of those translations that are its own; raises BenchError where all marks are alike."""
    name, pairs = translator.manifest.name, translator.manifest.languages.trained
    own = [each for each in every if each.languages in pairs]
    values, marks = [], []
    calibrated = translator.manifest.calibration is not None
    for each in own:
        source, target = each.languages
        [found] = translator.translate(each.source, source=source, target=target)
        if found.text != each.translation or not found.hypotheses:
            continue
        best = found.hypotheses[0]
        values.append(best.score if best.probability is None else best.probability)
        marks.append(MARKS.index(each.mark))
    progress(f"{name}: {len(own)} sentences")
    value, mark = np.array(values, dtype=float), np.array(marks)
    right, usable = (mark == 0).astype(float), (mark < 2).astype(float)
    if not all(0 < good.sum() < len(good) for good in (right, usable)):
        raise BenchError(
            f"{name}: needs translations of its own with marks of every kind, got "
            f"{len(marks)} of {len(own)}; read what it writes now"
        )
    return ReadingResult(
        name=name,
        sentences=len(marks),
        changed=len(own) - len(marks),
        right=float(right.mean()),
        usable=float(usable.mean()),
        auc_right=_with_interval(value, right),
        auc_usable=_with_interval(value, usable),
        mean_probability=float(value.mean()) if calibrated else None,
        error_right=expected_error(value, right) if calibrated else None,
        error_usable=expected_error(value, usable) if calibrated else None,
    )


def reading_markdown(results: Sequence[ReadingResult]) -> str:
    """A table with a row for each model."""
    return "\n".join(
        [
            "| bundle | sentences | right | right or usable | mean probability | AUC, right "
            "| AUC, not wrong | calibration error, right | calibration error, not wrong |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(
                f"| `{r.name}` | {r.sentences}{f' (+ {r.changed})' if r.changed else ''} "
                f"| {100 * r.right:.0f} % | {100 * r.usable:.0f} % | {_figure(r.mean_probability)} "
                f"| {_interval(r.auc_right)} | {_interval(r.auc_usable)} "
                f"| {_figure(r.error_right)} | {_figure(r.error_usable)} |"
                for r in results
            ),
        ]
    )


def _with_interval(value: Doubles, good: Doubles) -> tuple[float, float, float]:
    draw = np.random.default_rng(1)
    drawn = []
    for _ in range(_DRAWS):
        chosen = draw.integers(0, len(good), len(good))
        if 0 < good[chosen].sum() < len(good):
            drawn.append(auc(value[chosen], good[chosen]))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return auc(value, good), float(low), float(high)


def _interval(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
