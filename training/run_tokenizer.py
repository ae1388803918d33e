"""What a run begins with: its vocabulary, made once, and the weights of another run, if any."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from serving.bundle.tokenizer import TextTokenizer
from training.checkpoint import (
    find_checkpoint,
    load_fitting,
    load_weights,
    read_weights,
    write_atomically,
)
from training.claim import has_begun
from training.config import VOCABULARIES, DataConfig, Recipe, expand
from training.errors import ConfigError
from training.models import TextModel, Trainable, build_trainable
from training.run import find_vocabulary, load_text_tokenizer
from training.tokenizer import train_tokenizer
from training.vocabulary import write_vocabulary
from training.wordpiece import load_word_pieces, train_word_pieces


def prepare_tokenizer(recipe: Recipe, run: Path, texts: Iterable[str]) -> TextTokenizer:
    """The run's vocabulary: kept from an earlier start, given by the recipe, or made now.

    Raises ConfigError where it cannot be had, or is not of the model's size.
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
    """Raise ConfigError for a source's own vocabulary, of which texts know nothing here."""
    own = getattr(recipe.model, "source_vocab_size", 0)
    if own not in (0, recipe.model.vocab_size):
        raise ConfigError(
            "recipes have one vocabulary for both sides: model.source_vocab_size must be 0, or "
            f"model.vocab_size = {recipe.model.vocab_size} for an embedding of the source's own, "
            f"got {own}"
        )


def given_vocabulary(recipe: Recipe) -> Path | None:
    """The file that a recipe names, or that of the run whose weights it begins with.

    Raises CheckpointError where those have none.
    """
    if recipe.tokenizer.file is not None:
        return expand(recipe.tokenizer.file)
    checkpoint = initial_checkpoint(recipe)
    if checkpoint is None:
        return None
    return find_vocabulary(checkpoint, recipe.tokenizer.kind)


def initial_checkpoint(recipe: Recipe) -> Path | None:
    """The checkpoint that `loop.initial_weights` names; None where the recipe names none.

    Raises CheckpointError where there is none in that place.
    """
    place = recipe.loop.initial_weights
    return None if place is None else find_checkpoint(expand(place))


def begin_with(checkpoint: Path, model: Trainable) -> None:
    """Take over the weights of a checkpoint; of a model with a head of its own those of the encoder
    and, where it has them, of the pooler, so that the head is as it was made.

    Raises CheckpointError where they do not fit.
    """
    if not isinstance(model, TextModel):
        load_weights(checkpoint, model)
        return
    found, own = read_weights(checkpoint), model.state_dict()
    kept = {name: value for name, value in own.items() if not name.startswith("encoder.")}
    taken = {
        name: value
        for name, value in found.items()
        if name.startswith("encoder.") or (name.startswith("pooler.") and name in own)
    }
    load_fitting(checkpoint, {**kept, **taken}, model)


def check_initial_weights(recipe: Recipe, run: Path) -> None:
    """See that a run can begin with the weights that its recipe names; one that has begun need not.

    Raises CheckpointError where they are missing or do not fit the model, ConfigError where they
    were learnt with another vocabulary than the recipe's.
    """
    checkpoint = None if has_begun(run) else initial_checkpoint(recipe)
    if checkpoint is None:
        return
    begin_with(checkpoint, build_trainable(recipe.model))
    theirs = find_vocabulary(checkpoint, recipe.tokenizer.kind)
    ours = given_vocabulary(recipe)
    assert ours is not None
    if ours.read_bytes() != theirs.read_bytes():
        raise ConfigError(
            f"tokenizer.file is {ours}, but the weights in {checkpoint} were learnt with {theirs}, "
            "which differs; leave out tokenizer.file"
        )
