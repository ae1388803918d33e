"""An encoder to a bundle: graph, tokenizer, parity, the task's metric, manifest."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as FastTokenizer

from export.activation_ranges import measure_ranges
from export.arithmetic import Arithmetic, wide_arithmetic
from export.card import finish
from export.encoder_parity import (
    LEAST_COSINE,
    check_encoder,
    check_metric,
    cosine,
    measure_encoder,
    read_all,
)
from export.encoder_task import Task, read_task
from export.errors import ExportError
from export.exclusion import keep_exact, keep_rows
from export.folder import check_free, new_folder, tell_makers, told_origin
from export.foreign_encoder import ExportedEncoder, read_encoder
from export.graphs import choose_activations, write_text_graph
from export.quantize import Products, quantized_twin
from export.texts import SENTENCES
from export.trained_encoder import TrainedRun
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Activations, Manifest, Quality
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


def write_foreign_encoder(
    source: Path,
    out: Path,
    *,
    text: Path | None = None,
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

    int8 is fitted to `text`, one text a line, and the bundle is compared with the checkpoint on it;
    without it there are built-in sentences of several languages, and each row of activations has a
    scale of its own. `task` is a table of labelled texts: two texts and how alike they are, or a
    text, or two, and their label. Raises ExportError (ParityError) without leaving anything behind.
    """
    if activations is None and text is None:
        activations = "row"
    form = EncoderForm(precision, choose_activations(precision, "cpu", activations), priority)
    check_free(out, force=force)
    foreign = read_encoder(source, pooling)

    def compared(tokenizer: EncoderTokenizer) -> ComparedTexts:
        labelled = read_task(task, tokenizer, foreign.labels) if task else None
        if text is None:
            return ComparedTexts("built-in sentences", _built_in(tokenizer), labelled)
        return ComparedTexts(text.name, _read_texts(text, tokenizer), labelled)

    return _write(foreign, out, form, compared, {"attribution": attribution})


def export_encoder_bundle(
    path: Path,
    out: Path,
    *,
    precision: str,
    activations: Activations | None = None,
    priority: int = 0,
    dev: Path | None = None,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a run in which an encoder was fitted to labelled text, for classes
    or embeddings.

    int8 is fitted to the run's validation lines, or to those of the table `dev`, and the bundle is
    compared with the checkpoint on them, by the run's metric too. Raises ExportError (ParityError)
    without leaving anything behind.
    """
    form = EncoderForm(precision, choose_activations(precision, "cpu", activations), priority)
    check_free(out, force=force)
    run = TrainedRun(path, dev)

    def compared(tokenizer: EncoderTokenizer) -> ComparedTexts:
        texts = run.texts(tokenizer)
        _check_enough(run.path, len(texts))
        return ComparedTexts(run.path.name, texts, run.task(tokenizer))

    return _write(run.encoder, out, form, compared, told_origin(run.recipe))


def _write(
    encoder: ExportedEncoder,
    out: Path,
    form: EncoderForm,
    read: Callable[[EncoderTokenizer], ComparedTexts],
    facts: Mapping[str, Any],
) -> Manifest:
    """Write the bundle of an encoder, with these further fields of its manifest."""
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


def _read_texts(path: Path, tokenizer: EncoderTokenizer) -> list[EncodedText]:
    """The texts of a file, one a line, the ends of long ones cut off; raises ExportError where
    there are too few."""
    lines = [line for line in read_lines(path) if line.strip()]
    _check_enough(path, len(lines))
    if len(lines) > FITTED + COMPARED:
        lines = [*lines[:COMPARED], *lines[-FITTED:]]
    return [tokenizer.encode(line, truncate=True) for line in lines]


def _built_in(tokenizer: EncoderTokenizer) -> list[EncodedText]:
    """The built-in sentences of all languages."""
    listed = json.loads(SENTENCES.read_text(encoding="utf-8"))
    return [tokenizer.encode(line, truncate=True) for lines in listed.values() for line in lines]


def _check_enough(path: Path, count: int) -> None:
    if count < LEAST_TEXTS:
        raise ExportError(
            f"{path}: at least {LEAST_TEXTS} lines with words are needed to compare on, got "
            f"{count}; give another file with --text"
        )
