"""An encoder to a bundle: graph, tokenizer, parity, the task's metric, manifest."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as FastTokenizer

from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.choice import Arithmetic, wide_arithmetic
from export.arithmetic.exclusion import keep_exact, keep_rows
from export.arithmetic.quantize import Products, quantized_twin
from export.bundles.card import finish
from export.bundles.folder import new_folder, tell_makers
from export.comparison.encoder import (
    LEAST_COSINE,
    check_encoder,
    check_metric,
    measure_encoder,
    read_all,
)
from export.errors import ExportError
from export.graphs.writing import write_text_graph
from export.texts.labelled import Task, cosine
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Activations, Manifest, Quality
from serving.runtime.text_encoder import TextEncoder
from serving.threads import default_threads
from training.models import TextModel

ENCODER_TOKENIZER = "tokenizer.json"
FITTED, COMPARED, LEAST_TEXTS = 64, 512, 16
"""Texts to which int8 is fitted, the last ones; on which a bundle is compared, the first ones; and
that a file must hold."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportedEncoder:
    """An encoder to make a bundle of, wherever its weights come from."""

    model: TextModel
    tokenizer: FastTokenizer
    max_length: int
    """Longest input in ids, special ones included."""
    labels: tuple[str, ...]
    """Of the classes; none for embeddings."""


@dataclass(frozen=True)
class EncoderForm:
    """What a bundle is to be: its arithmetic, and its rank among others."""

    precision: str
    activations: Activations
    priority: int = 0


@dataclass(frozen=True)
class ComparedTexts:
    """The texts on which a bundle is compared, under the name of their file, and labelled ones."""

    name: str
    texts: list[EncodedText]
    task: Task | None


def write_encoder_bundle(
    encoder: ExportedEncoder,
    out: Path,
    form: EncoderForm,
    read: Callable[[EncoderTokenizer], ComparedTexts],
    facts: Mapping[str, Any],
) -> Manifest:
    """Write the bundle `out` of an encoder, with these further fields of its manifest, compared on
    what `read` gives for its tokenizer; raises ExportError (ParityError) without leaving anything
    behind."""
    with new_folder(out) as folder:
        compared = read(_write_tokenizer(encoder.tokenizer, folder, encoder.max_length))
        arithmetic = choose_encoder_arithmetic(
            encoder.model, compared.texts[-FITTED:], form.precision, form.activations
        )
        manifest = write_text_graph(
            encoder.model,
            folder,
            name=out.name,
            precision=form.precision,
            products=arithmetic.products,
            tokenizer_file=ENCODER_TOKENIZER,
            max_length=encoder.max_length,
            labels=encoder.labels,
        )
        bundle = TextEncoder(folder, manifest, default_threads())
        found = _compare(encoder.model, arithmetic, bundle, manifest, compared)
        manifest = manifest.model_copy(update={**facts, **found, "priority": form.priority})
        finish(folder, tell_makers(manifest))
    return read_manifest(out)


def _compare(
    model: TextModel,
    arithmetic: Arithmetic[TextModel],
    bundle: TextEncoder,
    manifest: Manifest,
    compared: ComparedTexts,
) -> dict[str, Any]:
    """What the manifest says of parity and quality; raises ParityError where a gate fails."""
    classes, task = manifest.task == "classify", compared.task
    texts = compared.texts[:COMPARED]
    parity = measure_encoder(model, arithmetic.twin, bundle, texts, classes=classes)
    logger.info("parity: %s", parity)
    check_encoder(parity, manifest.precision, classes=classes)
    figures = {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}
    found = {
        "data": compared.name,
        "fp32_products": len(arithmetic.products.exact),
        **figures,
        "texts": parity.texts,
    }
    if task is None:
        return {"parity": found}
    before = task.measure([read_all(model, part) for part in task.texts])
    after = task.measure([bundle.run(part) for part in task.texts])
    logger.info("%s: %s %.2f, checkpoint %.2f", task.name, task.metric, after, before)
    check_metric(task.metric, before, after)
    found |= {"metric_checkpoint": round(before, 2), "metric_bundle": round(after, 2)}
    note = f"{task.lines} lines"
    quality = Quality(data=task.name, metric=task.metric, value=round(after, 2), note=note)
    return {"parity": found, "quality": (quality,)}


def choose_encoder_arithmetic(
    model: TextModel, texts: Sequence[EncodedText], precision: str, activations: Activations
) -> Arithmetic[TextModel]:
    """Make a quantised twin and fit it to texts."""
    if precision != "int8":
        return Arithmetic(model)
    if activations == "row16":
        return wide_arithmetic(model)
    twin = quantized_twin(model)
    wanted, limit = read_all(model, texts), (1.0 - LEAST_COSINE) / 2

    def changes() -> NDArray[np.float64]:
        return (1.0 - cosine(wanted, read_all(twin, texts)).astype(np.float64)) / len(texts)

    ranges = None
    if activations == "static":
        ranges = measure_ranges(twin, lambda: read_all(twin, texts))
        # Rows that are unlike, such as those behind GELU, are better off with scales of their own.
        for key in keep_rows(twin, changes, limit):
            del ranges[key]
    return Arithmetic(twin, Products(ranges, keep_exact(twin, changes, limit)))


def _write_tokenizer(tokenizer: FastTokenizer, folder: Path, max_length: int) -> EncoderTokenizer:
    path = folder / ENCODER_TOKENIZER
    path.write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    return EncoderTokenizer(path, tokenizer.get_vocab_size(), max_length)


def check_enough(path: Path, count: int) -> None:
    """Raise ExportError where a file has too few texts to compare on."""
    if count < LEAST_TEXTS:
        raise ExportError(
            f"{path}: at least {LEAST_TEXTS} lines with words are needed to compare on, got "
            f"{count}; give another file with --text"
        )
