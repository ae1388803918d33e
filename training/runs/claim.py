"""Checks which run a run folder belongs to: a run claims it with its first checkpoint."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from training.errors import CheckpointError
from training.recipe.config import AUTO, VOCABULARIES, DataConfig, Recipe, recipe_to_dict
from training.runs.checkpoint import list_checkpoints, remove, write_atomically
from training.runs.folder import CONFIG_FILE, read_run_recipe

logger = logging.getLogger(__name__)

_FREE_SECTIONS = ("loop.", "optim.")
_FREE_KEYS = frozenset(
    {
        "name",
        # The same text may have another path; a digest checks that it is the same.
        "data.train",
        "data.validation",
        "data.held_out_pairs",
        "data.max_pieces",
        "data.max_length_ratio",
        "data.filters",
        "data.temperature",
        "data.noise",
        "data.cache",
        "data.cleaning",
        "data.attribution",
        # The run has its vocabulary already.
        "tokenizer.file",
        "tokenizer.max_sentences",
        "tokenizer.character_coverage",
        "model.dropout",
        "model.attention_dropout",
        "model.activation_dropout",
        "model.output_dropout",
        "model.head_dropout",
        "model.head_dropout_schedule",
    }
)
_FIXED_KEYS = frozenset(
    {
        "optim.optimizer",  # its state is another one
        "loop.seed",  # it orders the data: pairs would come twice or never
    }
)


def check_claim(recipe: Recipe, run: Path) -> None:
    """Check that a recipe may use a run folder, before any work and before any file is written.

    Files of a failed start without a checkpoint are replaced. A run that has a checkpoint may
    continue with another learning rate, length or path of the same text: with every change that
    does not affect what has been learnt. Each change is logged.

    Raises CheckpointError, which names the key, if the folder belongs to another run.
    """
    if not has_begun(run):
        _forget_vocabulary(recipe, run)
        return
    found, wanted = _flat(recipe_to_dict(read_run_recipe(run))), _flat(recipe_to_dict(recipe))
    for key in sorted(found.keys() | wanted.keys()):
        old, new = found.get(key), wanted.get(key)
        if old == new:
            continue
        if not _may_change(key):
            raise CheckpointError(
                f"{run} was started with another {key!r}: {old!r} there, {new!r} now; resume with "
                "the recipe that it has, or give another --run folder"
            )
        logger.info("%s of this run changes from %r to %r", key, old, new)


def write_claim(recipe: Recipe, run: Path) -> None:
    """Write the resolved recipe into the run folder."""
    text = yaml.safe_dump(_plain(recipe_to_dict(recipe)), sort_keys=False)
    write_atomically(run / CONFIG_FILE, text.encode())


def has_begun(run: Path) -> bool:
    """Whether the folder has a checkpoint."""
    return bool(list_checkpoints(run)) or (run / "best").exists()


def _forget_vocabulary(recipe: Recipe, run: Path) -> None:
    """Remove the vocabulary of an earlier start for another size, kind or text, or of a failed
    start whose recipe is unknown."""
    found: Recipe | None = None
    with contextlib.suppress(CheckpointError):
        found = read_run_recipe(run)
    same = (
        found is not None
        and found.model.vocab_size == recipe.model.vocab_size
        and found.tokenizer == recipe.tokenizer
        and _of_text(found) == _of_text(recipe)
        and found.loop.seed == recipe.loop.seed  # it chooses the pairs that are held out
        and found.loop.initial_weights == recipe.loop.initial_weights
    )
    if not same:
        for name in VOCABULARIES.values():
            remove(run / name)


def _of_text(recipe: Recipe) -> object:
    """The settings that decide the text; the batch size is not one of them."""
    data = recipe.data
    return replace(data, token_budget=AUTO) if isinstance(data, DataConfig) else data


def _may_change(key: str) -> bool:
    return key in _FREE_KEYS or (key.startswith(_FREE_SECTIONS) and key not in _FIXED_KEYS)


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    """`{section: {key: value}}` as `{"section.key": value}`."""
    flat: dict[str, Any] = {}
    for section, values in tree.items():
        if isinstance(values, dict):
            flat |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            flat[section] = values
    return flat


def _plain(value: Any) -> Any:
    """Convert tuples to lists, for YAML."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
