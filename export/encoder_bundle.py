"""An encoder to a bundle: graph, tokenizer, parity, the task's metric, manifest."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from export.activation_ranges import measure_ranges
from export.arithmetic import Arithmetic
from export.card import finish
from export.encoder_parity import (
    LEAST_COSINE,
    accuracy,
    check_encoder,
    check_metric,
    cosine,
    measure_encoder,
    ranking,
    read_all,
)
from export.errors import ExportError
from export.exclusion import keep_exact, keep_rows
from export.folder import check_free, commit, new_folder, package_versions
from export.foreign_encoder import read_encoder
from export.graphs import choose_activations, write_text_graph
from export.quantize import quantized_twin
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.manifest import Activations, Manifest, Quality, read_manifest
from serving.runtime.text_encoder import TextEncoder
from serving.threads import default_threads
from training.corpus import read_lines
from training.models import TextModel
from training.models.bert import Pooling

ENCODER_TOKENIZER = "tokenizer.json"
FITTED, COMPARED, LEAST_TEXTS = 64, 512, 16
"""Texts to which int8 is fitted, the last ones; on which a bundle is compared, the first ones; and
that a file must hold."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Labelled texts on which an encoder's metric is measured."""

    name: str
    metric: str
    texts: list[list[EncodedText]]
    """For embeddings the first and the second text of each pair; else the texts."""
    wanted: list[float]
    """Scores of the pairs, or the numbers of the labels."""

    def measure(self, found: Sequence[Floats]) -> float:
        """The metric, in points, of what was read from `texts`."""
        if self.metric == "accuracy":
            return accuracy(found[0], [int(label) for label in self.wanted])
        return ranking(found[0], found[1], self.wanted)


def write_foreign_encoder(
    source: Path,
    out: Path,
    *,
    text: Path,
    precision: str,
    activations: Activations | None = None,
    pooling: Pooling | None = None,
    task: Path | None = None,
    attribution: str = "",
    priority: int = 0,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a Hugging Face folder of a BERT, for embeddings or, where it has a
    classifier, for classes.

    int8 is fitted to `text`, one text a line, and the bundle is compared with the checkpoint on it.
    `task` is a file of labelled texts, one a line with tabs between: two texts and how alike they
    are, or a text and its label. Raises ExportError (ParityError) without leaving anything behind.
    """
    activations = choose_activations(precision, "cpu", activations)
    check_free(out, force=force)
    foreign = read_encoder(source, pooling)
    with new_folder(out) as folder:
        tokenizer = _write_tokenizer(foreign.tokenizer, folder, foreign.max_length)
        texts = _read_texts(text, tokenizer)
        labelled = _read_task(task, tokenizer, foreign.labels) if task else None
        arithmetic = choose_encoder_arithmetic(
            foreign.model, texts[-FITTED:], precision, activations
        )
        manifest = write_text_graph(
            foreign.model,
            folder,
            name=out.name,
            precision=precision,
            ranges=arithmetic.ranges,
            exact=arithmetic.exact,
            tokenizer_file=ENCODER_TOKENIZER,
            max_length=foreign.max_length,
            labels=foreign.labels,
        )
        bundle = TextEncoder(folder, manifest, default_threads())
        update = {
            **_compare(foreign.model, arithmetic, bundle, manifest, texts[:COMPARED], labelled),
            "priority": priority,
            "attribution": attribution,
            "versions": package_versions(),
            "commit": commit(),
        }
        update["parity"] = {"data": text.name, **update["parity"]}
        finish(folder, manifest.model_copy(update=update))
    return read_manifest(out)


def _compare(
    model: TextModel,
    arithmetic: Arithmetic[TextModel],
    bundle: TextEncoder,
    manifest: Manifest,
    texts: Sequence[EncodedText],
    task: Task | None,
) -> dict[str, Any]:
    """What the manifest says of parity and quality; raises ParityError where a gate fails."""
    classes = manifest.task == "classify"
    parity = measure_encoder(model, arithmetic.twin, bundle, texts, classes=classes)
    logger.info("parity: %s", parity)
    check_encoder(parity, manifest.precision, classes=classes)
    figures = {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}
    found = {"fp32_products": len(arithmetic.exact), **figures, "texts": parity.texts}
    if task is None:
        return {"parity": found}
    before = task.measure([read_all(model, part) for part in task.texts])
    after = task.measure([bundle.run(part) for part in task.texts])
    logger.info("%s: %s %.2f, checkpoint %.2f", task.name, task.metric, after, before)
    check_metric(task.metric, before, after)
    found |= {"metric_checkpoint": round(before, 2), "metric_bundle": round(after, 2)}
    note = f"{len(task.wanted)} lines"
    quality = Quality(data=task.name, metric=task.metric, value=round(after, 2), note=note)
    return {"parity": found, "quality": (quality,)}


def choose_encoder_arithmetic(
    model: TextModel, texts: Sequence[EncodedText], precision: str, activations: Activations
) -> Arithmetic[TextModel]:
    """Make a quantised twin and fit it to texts."""
    if precision != "int8":
        return Arithmetic(model)
    twin = quantized_twin(model)
    wanted, limit = read_all(model, texts), (1.0 - LEAST_COSINE) / 2

    def change() -> float:
        return 1.0 - float(cosine(wanted, read_all(twin, texts)).mean())

    ranges = None
    if activations == "static":
        ranges = measure_ranges(twin, lambda: read_all(twin, texts))
        # Rows that are unlike, such as those behind GELU, are better off with scales of their own.
        for key in keep_rows(twin, change, limit):
            del ranges[key]
    return Arithmetic(twin, ranges, keep_exact(twin, change, limit))


def _write_tokenizer(tokenizer: FastTokenizer, folder: Path, max_length: int) -> EncoderTokenizer:
    path = folder / ENCODER_TOKENIZER
    path.write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    return EncoderTokenizer(path, tokenizer.get_vocab_size(), max_length)


def _read_texts(path: Path, tokenizer: EncoderTokenizer) -> list[EncodedText]:
    """The texts of a file, one a line, the ends of long ones cut off; raises ExportError where
    there are too few."""
    lines = [line for line in read_lines(path) if line.strip()]
    if len(lines) < LEAST_TEXTS:
        raise ExportError(
            f"{path}: at least {LEAST_TEXTS} lines with words are needed to compare on, got "
            f"{len(lines)}; give another file with --text"
        )
    if len(lines) > FITTED + COMPARED:
        lines = [*lines[:COMPARED], *lines[-FITTED:]]
    return [tokenizer.encode(line, truncate=True) for line in lines]


def _read_task(path: Path, tokenizer: EncoderTokenizer, labels: Sequence[str]) -> Task:
    """Labelled texts; raises ExportError, naming the line, for one that is none."""
    columns = 2 if labels else 3
    texts: list[list[EncodedText]] = [[] for _ in range(columns - 1)]
    wanted: list[float] = []
    for number, line in enumerate(read_lines(path), start=1):
        *given, label = line.split("\t")
        if len(given) != columns - 1:
            raise ExportError(
                f"{path}, line {number}: must have {columns} columns with tabs between, got "
                f"{len(given) + 1}"
            )
        if labels and label not in labels:
            raise ExportError(f"{path}, line {number}: no class of the model is called {label!r}")
        try:
            wanted.append(labels.index(label) if labels else float(label))
        except ValueError as error:
            raise ExportError(
                f"{path}, line {number}: the score must be a number, got {label!r}"
            ) from error
        for column, part in zip(texts, given, strict=True):
            column.append(tokenizer.encode(part, truncate=True))
    if len(set(wanted)) < 2:
        raise ExportError(f"{path}: all lines say the same; give lines of several labels or scores")
    return Task(path.name, "accuracy" if labels else "Spearman", texts, wanted)
