"""Encoders that were trained here: a run to a bundle, compared on its validation lines."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from export.bundles.encoder import (
    ComparedTexts,
    EncoderForm,
    ExportedEncoder,
    check_enough,
    write_encoder_bundle,
)
from export.bundles.folder import check_free, told_origin
from export.errors import ExportError
from export.graphs.writing import choose_activations
from export.texts.labelled import Task, read_own_task
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.manifest import Activations, Manifest
from training.corpora.labelled import LabelledLine, read_sheet
from training.recipe.config import FineTuningRecipe
from training.runs.folder import VALIDATION_TABLE, load_encoder
from training.tasks.finetuning import read_validation
from training.vocabularies.word_pieces import load_word_pieces


class TrainedRun:
    """A fitted encoder with its run's validation lines, or others with the same columns."""

    def __init__(self, path: Path, dev: Path | None) -> None:
        """Raises CheckpointError or ConfigError where `path` is no run of a fitted encoder,
        ExportError where it kept no validation lines and none are given."""
        trained = load_encoder(path)
        self.recipe: FineTuningRecipe = trained.recipe
        data = self.recipe.data
        labels = ("score",) if data.kind == "regression" else data.labels
        pieces = load_word_pieces(trained.vocabulary)
        self.encoder = ExportedEncoder(trained.model, pieces, data.max_length, labels)
        self.path, self.lines = _lines(trained.checkpoint, self.recipe, dev)

    def texts(self, tokenizer: EncoderTokenizer) -> list[EncodedText]:
        """What the model reads of the lines, of each both texts behind one another."""
        return list(chain.from_iterable(zip(*self.task(tokenizer).texts, strict=True)))

    def task(self, tokenizer: EncoderTokenizer) -> Task:
        """The lines with their labels."""
        return read_own_task(self.path, self.lines, self.recipe, tokenizer)


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
        check_enough(run.path, len(texts))
        return ComparedTexts(run.path.name, texts, run.task(tokenizer))

    return write_encoder_bundle(run.encoder, out, form, compared, told_origin(run.recipe))


def _lines(
    checkpoint: Path, recipe: FineTuningRecipe, dev: Path | None
) -> tuple[Path, list[LabelledLine]]:
    data = recipe.data
    if dev is not None:
        return dev, read_sheet(dev, data.columns).lines(data.columns, data.num_texts)
    for folder in (checkpoint, checkpoint.parent, checkpoint.parent.parent):
        path = folder / VALIDATION_TABLE
        if path.is_file():
            return path, read_validation(path, data)
    raise ExportError(
        f"{checkpoint}: its run holds no validation lines to compare on; give --text TABLE"
    )
