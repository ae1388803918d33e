"""The vocabulary of a run, made once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from serving.bundle.tokenizer import TextTokenizer
from training.checkpoint import write_atomically
from training.config import DataConfig, Recipe, expand
from training.errors import ConfigError
from training.run import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    load_text_tokenizer,
)
from training.tokenizer import train_tokenizer
from training.vocabulary import write_vocabulary


def prepare_tokenizer(recipe: Recipe, run: Path, texts: Iterable[str]) -> TextTokenizer:
    """The run's vocabulary: kept from an earlier start, given by the recipe, or made now.

    Raises ConfigError where it cannot be had, or is not of the model's size.
    """
    words = recipe.tokenizer.kind == "words"
    path = run / (VOCABULARY_FILE if words else TOKENIZER_FILE)
    if not path.exists():
        if recipe.tokenizer.file is not None:
            given = expand(recipe.tokenizer.file)
            load_text_tokenizer(given, words=words)
            write_atomically(path, given.read_bytes())
        elif words:
            write_vocabulary(texts, path)
        else:
            data = recipe.data if isinstance(recipe.data, DataConfig) else None
            train_tokenizer(
                texts,
                path,
                vocab_size=recipe.model.vocab_size,
                model_type=recipe.tokenizer.model_type,
                character_coverage=recipe.tokenizer.character_coverage,
                max_sentences=recipe.tokenizer.max_sentences,
                symbols=data.tags if data else (),
                controls=tuple(data.language_tags.values()) if data else (),
            )
    tokenizer = load_text_tokenizer(path, words=words)
    if tokenizer.vocab_size != recipe.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {recipe.model.vocab_size}, but {path} has "
            f"{tokenizer.vocab_size} entries; set model.vocab_size={tokenizer.vocab_size}"
        )
    return tokenizer
