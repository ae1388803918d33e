"""Measures how well the probability of a translation agrees with the judgement of a human reader.

A file has a line per translation with tab-separated fields: the languages (`de-en`), the source,
the translation, and `right`, `usable` (complete, with a flaw of form) or `wrong`.
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
"""Number of bootstrap samples for the intervals."""


class ReadTranslation(NamedTuple):
    """A translation that a person has judged."""

    languages: tuple[str, str]
    source: str
    translation: str
    mark: str


@dataclass(frozen=True)
class ReadingResult:
    """The agreement of a model's probabilities with the marks of a reader."""

    name: str
    sentences: int
    changed: int
    """Number of sentences that the model now translates differently; they are ignored."""
    right: float
    """Share of right translations."""
    usable: float
    """Share of right or usable translations."""
    auc_right: tuple[float, float, float]
    """Probability that a right translation has a higher probability than another one, with the 95 %
    interval."""
    auc_usable: tuple[float, float, float]
    """Probability that a right or usable translation has a higher probability than a wrong one,
    with the 95 % interval."""
    mean_probability: float | None
    """Mean probability; None, like the next two, for a bundle without a calibration."""
    error_right: float | None
    """Expected calibration error if only right translations count as good."""
    error_usable: float | None
    """Expected calibration error if usable translations count as good too."""


def read_marks(path: Path) -> list[ReadTranslation]:
    """Read the translations of a file. Raises BenchError if it is unreadable or has other lines."""
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
    """Compare a model's probabilities, or its scores without a calibration, with the marks of the
    translations that it still makes. Raises BenchError if all marks are equal."""
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
    """A table with a row per model."""
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
