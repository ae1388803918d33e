"""From a recipe's files to clean pairs, a tokenizer and batched ids, once per run folder."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from serving.bundle.tokenizer import Tokenizer
from training.batching import BatchedCorpus, IdPair, PairBatch, collate
from training.checkpoint import write_atomically
from training.config import ParallelFiles, TranslationRecipe, expand
from training.corpus import Cleaner, CleaningReport, Pair, hold_out, iterate_texts, read_pairs
from training.errors import CorpusError
from training.loss import label_smoothed_loss
from training.models import TranslationModel
from training.run import (
    REPORT_FILE,
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
)
from training.run_tokenizer import prepare_tokenizer
from training.validation import validate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunData:
    """What a run trains and validates on; a `training.task.Task`."""

    recipe: TranslationRecipe
    tokenizer: Tokenizer
    train: BatchedCorpus
    validation: list[Pair]
    report: CleaningReport

    @property
    def digest(self) -> str:
        """A hash of the training text: a run is resumed on its own only."""
        return self.train.digest

    @property
    def validation_digest(self) -> str:
        """A digest of the validation text: a run goes on only with the one it has begun with."""
        return hashlib.sha256("\0".join(iterate_texts(self.validation)).encode()).hexdigest()

    def write(self, run: Path) -> None:
        """Write the report of cleaning, and the validation text, on which export compares."""
        report = json.dumps(self.report.to_dict(), indent=1).encode() + b"\n"
        write_atomically(run / REPORT_FILE, report)
        for side, name in enumerate((VALIDATION_SOURCE, VALIDATION_TARGET)):
            lines = "".join(f"{pair[side]}\n" for pair in self.validation)
            write_atomically(run / name, lines.encode())

    def epoch(self, epoch: int) -> list[list[IdPair]]:
        """The batches of an epoch.

        Raises CorpusError where there is none.
        """
        batches = self.train.epoch(epoch)
        if not batches:
            raise CorpusError("no training pair is left after cleaning; see corpus_report.json")
        return batches

    def collate(self, pairs: list[IdPair], device: torch.device) -> PairBatch:
        """Padded tensors of one batch, on a device."""
        return collate(pairs).to(device)

    def loss(self, model: TranslationModel, batch: PairBatch, smoothing: float) -> Tensor:
        """Label-smoothed loss, summed over the labels of a batch."""
        logits = model(batch.source_BS, batch.target_BT)
        return label_smoothed_loss(logits, batch.labels_BT, smoothing)

    def validate(self, model: TranslationModel) -> dict[str, float | str]:
        """Loss on all held-out pairs, BLEU and chrF on some (`training.validation.validate`)."""
        return validate(model, self.tokenizer, self.validation, self.recipe)


@dataclass(frozen=True)
class Corpus:
    """The clean text of a recipe."""

    train: list[Pair]
    weights: list[float]
    """How often each training pair comes in an epoch, as the first files that hold it say."""
    validation: list[Pair]
    report: CleaningReport


def read_corpus(recipe: TranslationRecipe) -> Corpus:
    """Read, clean and split the text of a recipe.

    Raises CorpusError where a file cannot be used or no pair is left.
    """
    cleaner = Cleaner(max_length_ratio=recipe.data.max_length_ratio)
    weights: dict[Pair, float] = {}
    for files in recipe.data.train:
        weights |= dict.fromkeys(cleaner.clean(_read(files), files.source), files.weight)
    if not weights:
        raise CorpusError(f"{recipe.data.train[0].source}: no usable pair; {cleaner.report}")
    train = list(weights)
    if recipe.data.validation is not None:
        validation = _read(recipe.data.validation)
        if not any(source.strip() and target.strip() for source, target in validation):
            raise CorpusError(
                f"{recipe.data.validation.source}: no pair of the validation text has words on "
                "both sides; give another data.validation, or leave it out to hold pairs out"
            )
    else:
        train, validation = hold_out(train, recipe.data.held_out_pairs, recipe.loop.seed)
        cleaner.report.held_out = len(validation)
    return Corpus(train, [weights[pair] for pair in train], validation, cleaner.report)


def prepare(recipe: TranslationRecipe, run: Path) -> RunData:
    """Clean the text and batch the ids; a run folder without a tokenizer gets one.

    Raises CorpusError or ConfigError where that cannot be done.
    """
    corpus = read_corpus(recipe)
    report = corpus.report
    tokenizer = prepare_tokenizer(recipe, run, iterate_texts(corpus.train))
    assert isinstance(tokenizer, Tokenizer)  # a translation recipe has no word list
    train = BatchedCorpus(
        corpus.train,
        tokenizer,
        token_budget=recipe.data.token_budget,
        max_pieces=recipe.data.max_pieces,
        cost=recipe.model.batch_cost,
        subword_alpha=recipe.data.subword_alpha,
        weights=corpus.weights,
        seed=recipe.loop.seed,
    )
    for reason, count in train.dropped.items():
        report.drop_kept(reason, count)
    logger.info("%s", report)
    return RunData(recipe, tokenizer, train, corpus.validation, report)


def _read(files: ParallelFiles) -> list[Pair]:
    return read_pairs(expand(files.source), expand(files.target))
