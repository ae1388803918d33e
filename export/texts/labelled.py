"""Labelled texts on which an encoder's bundle is measured beside its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.errors import ExportError
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from training.corpora.labelled import LabelledLine, read_sheet, scores
from training.corpora.labelled import targets as find_targets
from training.metrics.labels import class_metrics, score_metrics
from training.recipe.config import FineTuningRecipe
from training.recipe.encoder_sections import METRICS
from training.tasks.finetuning import LineReader, measure


@dataclass(frozen=True)
class LabelledTask:
    """Labelled texts, and the metric of a model's outputs for them."""

    name: str
    metric: str
    texts: list[list[EncodedText]]
    """The texts to read. For pairs compared by their vectors, these are the first texts and the
    second texts."""
    lines: int
    measured: Callable[[Sequence[Floats]], float]
    """The metric, from 0 to 1, of the outputs for each of `texts`."""

    def measure(self, found: Sequence[Floats]) -> float:
        """The metric in points."""
        return 100.0 * self.measured(found)


def read_task(path: Path, tokenizer: EncoderTokenizer, labels: Sequence[str]) -> LabelledTask:
    """Read a table of one or two texts and, in the last column, their label; for an encoder without
    `labels` that is the similarity of two texts.

    Raises CorpusError or ExportError, with the line, if the table is not like that.
    """
    sheet = read_sheet(path)
    number, cells = sheet.rows[0]
    allowed = (2, 3) if labels else (3,)
    if len(cells) not in allowed:
        raise ExportError(
            f"{path}, line {number}: must have {' or '.join(map(str, allowed))} columns, got "
            f"{len(cells)}"
        )
    lines = sheet.lines(range(1, len(cells) + 1), len(cells) - 1)
    if not labels:
        return _alike(path, lines, tokenizer)
    for line in lines:
        if line.label not in labels:
            raise ExportError(
                f"{path}, line {line.number}: no class of the model is called {line.label!r}"
            )
    wanted = [labels.index(line.label) for line in lines]
    _check_different(path, wanted)
    texts = [tokenizer.encode(*line.texts, truncate=True) for line in lines]

    def measured(found: Sequence[Floats]) -> float:
        return float(class_metrics(found[0], wanted, labels)["accuracy"])

    return LabelledTask(path.name, "accuracy", [texts], len(lines), measured)


def _alike(path: Path, lines: Sequence[LabelledLine], tokenizer: EncoderTokenizer) -> LabelledTask:
    wanted = scores(path, lines)
    _check_different(path, wanted)
    texts = [
        [tokenizer.encode(line.texts[side], truncate=True) for line in lines] for side in (0, 1)
    ]

    def measured(found: Sequence[Floats]) -> float:
        return float(score_metrics(cosine(found[0], found[1]), wanted)["spearman"])

    return LabelledTask(path.name, "Spearman", texts, len(lines), measured)


def _check_different(path: Path, wanted: Sequence[float]) -> None:
    if len(set(wanted)) < 2:
        raise ExportError(
            f"{path}: all lines have the same label; give lines of several labels or scores"
        )


def read_own_task(
    path: Path, lines: Sequence[LabelledLine], recipe: FineTuningRecipe, tokenizer: EncoderTokenizer
) -> LabelledTask:
    """Lines of a run's own kind, measured by the metric that chose its best checkpoint; raises
    CorpusError, with the line of `path`, for a label that does not occur in training."""
    data, by = recipe.data, recipe.loop.best_by
    metric = METRICS[data.kind][0] if by == "loss" else by
    reader = LineReader(data, tokenizer)
    inputs = [reader.inputs(line.texts) for line in lines]
    texts = [list(column) for column in zip(*inputs, strict=True)]
    wanted = find_targets(path, lines, data)

    def measured(found: Sequence[Floats]) -> float:
        return float(measure(data, found, wanted)[metric])

    return LabelledTask(path.name, metric, texts, len(lines), measured)


def cosine(first_BW: Floats, second_BW: Floats) -> Floats:
    """The cosine [B] of each row of `first_BW` with the same row of `second_BW`."""
    products = (first_BW * second_BW).sum(axis=1)
    lengths = np.linalg.norm(first_BW, axis=1) * np.linalg.norm(second_BW, axis=1)
    found: Floats = products / np.maximum(lengths, np.float32(1e-12))
    return found
