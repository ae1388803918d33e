"""The task of training a language model: from a recipe's text to a vocabulary and batched ids."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from serving.arrays import Int32s
from serving.bundle.tokenizer import TextTokenizer
from training.batches.segments import TextCorpus, cut_columns, join_documents
from training.corpora.pairs import read_lines
from training.corpora.wikitext import clean_wikitext
from training.errors import CorpusError
from training.models import Network
from training.recipe.config import LanguageRecipe, TextConfig, expand
from training.runs.checkpoint import write_atomically
from training.runs.folder import REPORT_FILE, VALIDATION_TEXT
from training.tasks.loss import label_smoothed_loss
from training.vocabularies.of_run import prepare_tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextBatch:
    """Rows of tokens and the tokens that follow each; there is no padding."""

    inputs_BT: Tensor
    labels_BT: Tensor

    @property
    def num_labels(self) -> int:
        """Tokens to predict: all of them, for nothing is padding."""
        return self.labels_BT.numel()

    def to(self, device: torch.device) -> TextBatch:
        """The same batch on a device; out of pinned memory it is copied while others compute."""
        return TextBatch(
            self.inputs_BT.to(device, non_blocking=True),
            self.labels_BT.to(device, non_blocking=True),
        )

    def pin_memory(self) -> TextBatch:
        """The same batch in pinned memory, which a GPU can read directly."""
        return TextBatch(self.inputs_BT.pin_memory(), self.labels_BT.pin_memory())


@dataclass(frozen=True)
class TextData:
    """The training and validation data of a language model; a `training.tasks.task.Task`."""

    recipe: LanguageRecipe
    tokenizer: TextTokenizer
    train: TextCorpus
    validation: Int32s
    """The validation text, an eos after each document."""
    validation_documents: list[str]
    report: dict[str, Any]
    """The report of cleaning: how much was kept and dropped."""

    @property
    def digest(self) -> str:
        """A hash of the training text: a run is resumed on its own only."""
        return self.train.digest

    @property
    def validation_digest(self) -> str:
        """A digest of the validation text; a run can be resumed only on the text it has begun
        with."""
        return hashlib.sha256(self.validation.tobytes()).hexdigest()

    def write(self, run: Path) -> None:
        """Write the report of cleaning and the cleaned validation text."""
        write_atomically(run / REPORT_FILE, json.dumps(self.report, indent=1).encode() + b"\n")
        text = "".join(f"{document}\n" for document in self.validation_documents)
        write_atomically(run / VALIDATION_TEXT, text.encode())

    def change_after(self, begun: int) -> None:
        """None: the text does not change while a language model is trained."""

    def parts(self, begun: int) -> int:
        """An epoch has one."""
        return 1

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[Int32s]:
        """The batches of an epoch; the steps before it do not matter.

        Raises CorpusError if the text does not fill one.
        """
        batches = self.train.epoch(epoch)
        if not batches:
            data = self.recipe.data
            raise CorpusError(
                f"the training text has {self.train.num_tokens} tokens, which fill no batch of "
                f"data.batch_size = {data.batch_size} rows; lower it or add text"
            )
        return batches

    def collate(self, segment_BT: Int32s, device: torch.device) -> TextBatch:
        """Inputs and labels of one batch of segments, on a device."""
        ids = torch.from_numpy(segment_BT.astype(np.int64)).to(device)
        return TextBatch(ids[:, :-1], ids[:, 1:])

    def loss(self, model: Network, batch: TextBatch, smoothing: float) -> Tensor:
        """Label-smoothed loss, summed over all tokens of a batch."""
        states = model.states(batch.inputs_BT)
        return label_smoothed_loss(model, states, batch.labels_BT, smoothing, ignored_id=None)

    @torch.no_grad()
    def validate(self, model: Network) -> dict[str, float | str]:
        """Loss per token (nats) and perplexity on the validation text, in columns of cold segments
        of the training's shape; the model is left in evaluation mode."""
        model.eval()
        device = next(model.parameters()).device
        data = self.recipe.data
        total, count = 0.0, 0
        for segment in cut_columns(self.validation, data.batch_size, data.segment_length):
            batch = self.collate(segment, device)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.recipe.loop.bf16):
                total += float(self.loss(model, batch, 0.0))
            count += batch.num_labels
        loss = total / count
        return {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}


def prepare_text(recipe: LanguageRecipe, run: Path) -> TextData:
    """Clean the text and batch the ids; a run folder without a vocabulary gets one.

    Raises CorpusError or ConfigError if that cannot be done.
    """
    data = recipe.data
    documents: list[str] = []
    dropped: dict[str, int] = {}
    for file in data.train:
        kept, reasons = read_documents(expand(file), data)
        documents += kept
        dropped = {name: dropped.get(name, 0) + count for name, count in reasons.items()}
    if not documents:
        raise CorpusError(f"{data.train[0]}: no usable line; dropped {dropped}")
    validation, _ = read_documents(expand(data.validation), data)
    if not any(document.strip() for document in validation):
        raise CorpusError(f"{data.validation}: the validation text is blank; give one with words")
    tokenizer = prepare_tokenizer(recipe, run, documents)
    train = TextCorpus(
        tokenizer.encode_batch(documents),
        batching=data.batching,
        batch_size=data.batch_size,
        segment_length=data.segment_length,
        seed=recipe.loop.seed,
    )
    validation_ids = join_documents(tokenizer.encode_batch(validation))
    if len(validation_ids) < 2 * data.batch_size:
        raise CorpusError(
            f"{data.validation}: has {len(validation_ids)} tokens; validation needs two for each "
            f"of data.batch_size = {data.batch_size} columns; lower it or give a longer text"
        )
    report = {"kept": len(documents), "tokens": train.num_tokens, "dropped": dropped}
    logger.info("%d documents, %d tokens, dropped %s", len(documents), train.num_tokens, dropped)
    return TextData(recipe, tokenizer, train, validation_ids, validation, report)


def read_documents(path: Path, data: TextConfig) -> tuple[list[str], dict[str, int]]:
    """The documents of a file, cleaned as the recipe says, and the numbers of dropped lines by
    reason.

    Raises CorpusError if the file cannot be read.
    """
    lines = read_lines(path)
    return clean_wikitext(lines) if data.cleaning == "wikitext" else (lines, {})
