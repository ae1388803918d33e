"""What a run begins with: its vocabulary, made once, and the weights of another run, if any."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from serving.bundle.tokenizer import TextTokenizer
from training.checkpoint import find_checkpoint, load_weights, write_atomically
from training.claim import has_begun
from training.config import DataConfig, Recipe, expand
from training.errors import ConfigError
from training.models import build_network
from training.run import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    find_vocabulary,
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
        given = given_vocabulary(recipe)
        if given is not None:
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


def given_vocabulary(recipe: Recipe) -> Path | None:
    """The file that a recipe names, or that of the run whose weights it begins with.

    Raises CheckpointError where those have none.
    """
    if recipe.tokenizer.file is not None:
        return expand(recipe.tokenizer.file)
    checkpoint = initial_checkpoint(recipe)
    if checkpoint is None:
        return None
    return find_vocabulary(checkpoint, words=recipe.tokenizer.kind == "words")


def initial_checkpoint(recipe: Recipe) -> Path | None:
    """The checkpoint that `loop.initial_weights` names; None where the recipe names none.

    Raises CheckpointError where there is none in that place.
    """
    place = recipe.loop.initial_weights
    return None if place is None else find_checkpoint(expand(place))


def check_initial_weights(recipe: Recipe, run: Path) -> None:
    """See that a run can begin with the weights that its recipe names; one that has begun need not.

    Raises CheckpointError where they are missing or do not fit the model, ConfigError where they
    were learnt with another vocabulary than the recipe's.
    """
    checkpoint = None if has_begun(run) else initial_checkpoint(recipe)
    if checkpoint is None:
        return
    load_weights(checkpoint, build_network(recipe.model))
    theirs = find_vocabulary(checkpoint, words=recipe.tokenizer.kind == "words")
    ours = given_vocabulary(recipe)
    assert ours is not None
    if ours.read_bytes() != theirs.read_bytes():
        raise ConfigError(
            f"tokenizer.file is {ours}, but the weights in {checkpoint} were learnt with {theirs}, "
            "which differs; leave out tokenizer.file"
        )
