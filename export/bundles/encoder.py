"""Encoders as subjects of an export, and those of this project's runs."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as FastTokenizer

from export.arithmetic.choice import Arithmetic, Fitting
from export.arithmetic.exclusion import Changes
from export.bundles.folder import origin_fields
from export.bundles.subject import Form, Found
from export.comparison.encoder import (
    LEAST_COSINE,
    Read,
    check_encoder,
    check_metric,
    measure_encoder,
    read_all,
)
from export.errors import ExportError
from export.gates.gpu import compare_rounded, compare_texts_in_reference, on_cpu
from export.graphs.writing import ENCODER_TOKENIZER, write_text_graph
from export.texts.labelled import LabelledTask, cosine, read_own_task
from export.texts.texts import Texts, run_folders
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.manifest import Manifest, Quality
from serving.runtime.device import runs_on_cpu
from serving.runtime.text_encoder import TextEncoder
from serving.threads import default_threads
from training.corpora.labelled import LabelledLine, read_sheet
from training.models import TextModel
from training.recipe.config import FineTuningRecipe
from training.runs.folder import VALIDATION_TABLE, load_encoder
from training.tasks.finetuning import read_validation
from training.vocabularies.word_pieces import load_word_pieces

FITTED, COMPARED, LEAST_TEXTS = 64, 512, 16
"""Numbers of texts: int8 is fitted to the last 64, the first 512 are compared, and a file must have
at least 16. All texts are used to find products that are too large for fp16."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadEncoder:
    """An encoder and its text side."""

    model: TextModel
    tokenizer: FastTokenizer
    max_length: int
    """Longest input in ids, special ones included."""
    labels: tuple[str, ...]
    """Class labels; empty for embeddings."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prompts before a text whose vector is wanted, by name."""
    default_prompt: str | None = None
    """Name of the default prompt."""

    def serialized(self) -> bytes:
        """The file of the tokenizer."""
        return str(self.tokenizer.to_str(pretty=False)).encode()

    def text_reader(self) -> EncoderTokenizer:
        """The tokenizer in the bundle's form."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / ENCODER_TOKENIZER
            path.write_bytes(self.serialized())
            return EncoderTokenizer(path, self.tokenizer.get_vocab_size(), self.max_length)


@dataclass(frozen=True)
class EncoderSubject:
    """An encoder to export, from any source."""

    encoder: ReadEncoder
    text_name: str
    texts: list[EncodedText]
    """Texts for the comparison."""
    task: LabelledTask | None
    """Labelled texts to score."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> TextModel:
        """The checkpoint's model."""
        return self.encoder.model

    @property
    def files(self) -> Mapping[str, bytes]:
        """The tokenizer file."""
        return {ENCODER_TOKENIZER: self.encoder.serialized()}

    def fitting(self) -> Fitting[TextModel]:
        """The fitting on the last texts. The change is that of the cosine with the checkpoint's
        outputs."""
        fitting = fitting_to(self.model, self.texts[-FITTED:])
        return dataclasses.replace(fitting, run_batches=lambda model: read_all(model, self.texts))

    def write_graphs(
        self, arithmetic: Arithmetic[TextModel], folder: Path, name: str, form: Form
    ) -> Manifest:
        """Write the one graph, of packed texts."""
        manifest = write_text_graph(
            arithmetic.model,
            folder,
            name=name,
            precision=form.precision,
            target=form.target,
            products=arithmetic.products,
            max_length=self.encoder.max_length,
            labels=self.encoder.labels,
        )
        assert manifest.reading is not None
        prompts = {
            "prompts": dict(self.encoder.prompts),
            "default_prompt": self.encoder.default_prompt,
        }
        reading = manifest.reading.model_copy(update=prompts)
        return manifest.model_copy(update={"reading": reading})

    def compare(self, arithmetic: Arithmetic[TextModel], folder: Path, manifest: Manifest) -> Found:
        """Compare the outputs on the first texts, and the task's metric before and after."""
        twin = arithmetic.twin
        found: dict[str, Any] = {}
        quality: tuple[Quality, ...] = ()
        if runs_on_cpu(manifest.precision):
            bundle = TextEncoder(folder, on_cpu(manifest), default_threads())
            figures, quality = self._measure(twin, bundle.run, manifest)
            found = {"fp32_products": len(arithmetic.products.exact), **figures}
        found |= compare_rounded(
            manifest.precision,
            lambda: self._measure(twin, lambda texts: read_all(twin, texts), manifest)[0],
        )
        found |= compare_texts_in_reference(twin, folder, manifest, self.texts)
        return found, quality

    def _measure(self, twin: TextModel, read: Read, manifest: Manifest) -> Found:
        """The figures of the outputs of `read` for the texts, and of the task."""
        classes, task, texts = manifest.task == "classify", self.task, self.texts[:COMPARED]
        parity = measure_encoder(self.model, twin, read, texts, classes=classes)
        logger.info("parity: %s", parity)
        check_encoder(parity, manifest.precision, classes=classes)
        figures = {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}
        found: dict[str, Any] = {**figures, "texts": parity.texts}
        if task is None:
            return found, ()
        before = task.measure([read_all(self.model, part) for part in task.texts])
        after = task.measure([read(part) for part in task.texts])
        logger.info("%s: %s %.2f, checkpoint %.2f", task.name, task.metric, after, before)
        check_metric(task.metric, before, after)
        found |= {"metric_checkpoint": round(before, 2), "metric_bundle": round(after, 2)}
        note = f"{task.lines} lines"
        quality = Quality(data=task.name, metric=task.metric, value=round(after, 2), note=note)
        return found, (quality,)


def fitting_to(model: TextModel, texts: Sequence[EncodedText]) -> Fitting[TextModel]:
    """The fitting of an encoder's arithmetic to texts."""

    def changes_of(twin: TextModel) -> Changes:
        wanted = read_all(model, texts)

        def changes() -> NDArray[np.float64]:
            return (1.0 - cosine(wanted, read_all(twin, texts)).astype(np.float64)) / len(texts)

        return changes

    return Fitting(
        run=lambda twin: read_all(twin, texts),
        changes=changes_of,
        limit=(1.0 - LEAST_COSINE) / 2,
        keeps_rows=True,
    )


def check_enough(path: Path, count: int) -> None:
    """Raise ExportError if a file has too few texts to compare on."""
    if count < LEAST_TEXTS:
        raise ExportError(
            f"{path}: at least {LEAST_TEXTS} lines with words are needed to compare on, got "
            f"{count}; give another file with --text"
        )


def trained_encoder(path: Path, texts: Texts) -> EncoderSubject:
    """An encoder that a run fitted to labelled text. It is compared on the run's validation lines,
    or on those of another table with the same columns, also by the run's metric.

    Raises CheckpointError or ConfigError if `path` is no such run, ExportError if it kept no
    validation lines and none are given.
    """
    trained = load_encoder(path)
    recipe: FineTuningRecipe = trained.recipe
    data = recipe.data
    labels = ("score",) if data.kind == "regression" else data.labels
    pieces = load_word_pieces(trained.vocabulary)
    encoder = ReadEncoder(trained.model, pieces, data.max_length, labels)
    table, lines = _lines(trained.checkpoint, recipe, texts.text)
    task = read_own_task(table, lines, recipe, encoder.text_reader())
    # Both texts of each line, in order.
    compared = list(chain.from_iterable(zip(*task.texts, strict=True)))
    check_enough(table, len(compared))
    return EncoderSubject(encoder, table.name, compared, task, origin_fields(recipe))


def _lines(
    checkpoint: Path, recipe: FineTuningRecipe, dev: Path | None
) -> tuple[Path, list[LabelledLine]]:
    data = recipe.data
    if dev is not None:
        return dev, read_sheet(dev, data.columns).lines(data.columns, data.num_texts)
    for folder in run_folders(checkpoint):
        path = folder / VALIDATION_TABLE
        if path.is_file():
            return path, read_validation(path, data)
    raise ExportError(
        f"{checkpoint}: its run holds no validation lines to compare on; give --text TABLE"
    )
