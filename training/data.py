"""From a recipe's files to clean pairs, a tokenizer and batched ids, once per run folder."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from serving.tokenizer import Tokenizer
from training.batching import BatchedCorpus
from training.checkpoint import write_atomically
from training.config import ParallelFiles, Recipe, expand
from training.corpus import (
    CleaningReport,
    Pair,
    clean_pairs,
    hold_out,
    iterate_texts,
    read_pairs,
)
from training.errors import ConfigError
from training.tokenizer import train_tokenizer

logger = logging.getLogger(__name__)

TOKENIZER_FILE = "tokenizer.model"


@dataclass(frozen=True)
class RunData:
    """What a run trains and validates on."""

    tokenizer: Tokenizer
    train: BatchedCorpus
    validation: list[Pair]


def read_corpus(recipe: Recipe) -> tuple[list[Pair], list[Pair], CleaningReport]:
    """Clean training pairs, validation pairs and the report of what was dropped."""
    report = CleaningReport()
    pairs: list[Pair] = []
    for files in recipe.data.train:
        kept, report = clean_pairs(
            _read(files),
            max_length_ratio=recipe.data.max_length_ratio,
            origin=files.source,
            report=report,
        )
        pairs += kept
    if recipe.data.validation is not None:
        return pairs, _read(recipe.data.validation), report
    train, validation = hold_out(pairs, recipe.data.held_out_pairs, recipe.loop.seed)
    return train, validation, report


def prepare(recipe: Recipe, run: Path) -> RunData:
    """Read and clean the text, train the tokenizer if the run has none, and batch the ids."""
    pairs, validation, report = read_corpus(recipe)
    logger.info("%s", report)
    write_atomically(
        run / "corpus_report.json", json.dumps(report.to_dict(), indent=1).encode() + b"\n"
    )
    tokenizer = prepare_tokenizer(recipe, run, pairs)
    train = BatchedCorpus(
        pairs,
        tokenizer,
        token_budget=recipe.data.token_budget,
        max_pieces=recipe.data.max_pieces,
        subword_alpha=recipe.data.subword_alpha,
        seed=recipe.loop.seed,
    )
    return RunData(tokenizer, train, validation)


def prepare_tokenizer(recipe: Recipe, run: Path, pairs: list[Pair]) -> Tokenizer:
    """The run's tokenizer: kept from an earlier start, given by the recipe, or trained now."""
    path = run / TOKENIZER_FILE
    if not path.exists():
        if recipe.tokenizer.file is not None:
            write_atomically(path, expand(recipe.tokenizer.file).read_bytes())
        else:
            train_tokenizer(
                iterate_texts(pairs),
                path,
                vocab_size=recipe.model.vocab_size,
                model_type=recipe.tokenizer.model_type,
                character_coverage=recipe.tokenizer.character_coverage,
                max_sentences=recipe.tokenizer.max_sentences,
            )
    tokenizer = Tokenizer(path)
    if tokenizer.vocab_size != recipe.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {recipe.model.vocab_size}, but {path} has "
            f"{tokenizer.vocab_size} pieces; set model.vocab_size={tokenizer.vocab_size}"
        )
    return tokenizer


def _read(files: ParallelFiles) -> list[Pair]:
    return read_pairs(expand(files.source), expand(files.target))
