"""A run's vocabulary, made once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from serving.bundle.tokenizer import TextTokenizer
from training.errors import ConfigError
from training.recipe.config import VOCABULARIES, DataConfig, Recipe
from training.runs.checkpoint import write_atomically
from training.runs.folder import load_text_tokenizer
from training.runs.initial_weights import given_vocabulary
from training.vocabularies.sentence_pieces import train_tokenizer
from training.vocabularies.word_pieces import load_word_pieces, train_word_pieces
from training.vocabularies.words import write_vocabulary


def prepare_tokenizer(recipe: Recipe, run: Path, texts: Iterable[str]) -> TextTokenizer:
    """The run's vocabulary: kept from an earlier start, given by the recipe, or made now.

    Raises ConfigError if it cannot be had, or is not of the model's size.
    """
    _check_source(recipe)
    path = _prepare_file(recipe, run, texts)
    tokenizer = load_text_tokenizer(path, words=recipe.tokenizer.kind == "words")
    _check_size(recipe, path, tokenizer.vocab_size)
    return tokenizer


def prepare_word_pieces(recipe: Recipe, run: Path, texts: Iterable[str]) -> FastTokenizer:
    """`prepare_tokenizer` of an encoder."""
    path = _prepare_file(recipe, run, texts)
    tokenizer = load_word_pieces(path)
    _check_size(recipe, path, tokenizer.get_vocab_size())
    return tokenizer


def _prepare_file(recipe: Recipe, run: Path, texts: Iterable[str]) -> Path:
    """The file of the run's vocabulary, which is there or put there."""
    kind = recipe.tokenizer.kind
    path = run / VOCABULARIES[kind]
    if path.exists():
        return path
    given = given_vocabulary(recipe)
    if given is not None:
        if kind == "wordpiece":
            load_word_pieces(given)
        else:
            load_text_tokenizer(given, words=kind == "words")
        write_atomically(path, given.read_bytes())
    elif kind == "words":
        write_vocabulary(texts, path)
    elif kind == "wordpiece":
        lowercase = recipe.tokenizer.lowercase
        train_word_pieces(texts, path, recipe.model.vocab_size, lowercase=lowercase)
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
    return path


def _check_size(recipe: Recipe, path: Path, size: int) -> None:
    if size != recipe.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size is {recipe.model.vocab_size}, but {path} has {size} entries; set "
            f"model.vocab_size={size}"
        )


def _check_source(recipe: Recipe) -> None:
    """Raise ConfigError for a separate source vocabulary, which cannot be made from texts here."""
    own = getattr(recipe.model, "source_vocab_size", 0)
    if own not in (0, recipe.model.vocab_size):
        raise ConfigError(
            "recipes have one vocabulary for both sides: model.source_vocab_size must be 0, or "
            f"model.vocab_size = {recipe.model.vocab_size} for an embedding of the source's own, "
            f"got {own}"
        )
