"""Encoders that were trained here: a run to what is exported, and the lines that it is compared
on."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from export.encoder_task import Task, read_own_task
from export.errors import ExportError
from export.foreign_encoder import ExportedEncoder
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from training.config import FineTuningRecipe
from training.finetuning import read_validation
from training.labelled import LabelledLine, read_sheet
from training.run import VALIDATION_TABLE, load_encoder
from training.wordpiece import load_word_pieces


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
