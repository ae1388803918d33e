"""Starts a run with the weights of another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from training.errors import ConfigError
from training.models import TextModel, Trainable, build_trainable
from training.recipe.config import Recipe, expand
from training.runs.checkpoint import find_checkpoint, load_fitting, load_weights, read_weights
from training.runs.claim import has_begun
from training.runs.folder import find_vocabulary, read_run_recipe


def given_vocabulary(recipe: Recipe) -> Path | None:
    """The vocabulary file of a recipe, or of the run whose weights it starts with.

    Raises CheckpointError if that run has none.
    """
    if recipe.tokenizer.file is not None:
        return expand(recipe.tokenizer.file)
    checkpoint = initial_checkpoint(recipe)
    if checkpoint is None:
        return None
    return find_vocabulary(checkpoint, recipe.tokenizer.kind)


def initial_checkpoint(recipe: Recipe) -> Path | None:
    """The checkpoint that `loop.initial_weights` names; None if the recipe names none.

    Raises CheckpointError if it does not exist.
    """
    place = recipe.loop.initial_weights
    return None if place is None else find_checkpoint(expand(place))


def begin_with(checkpoint: Path, model: Trainable) -> None:
    """Load the weights of a checkpoint. A model with a head of its own gets those of the encoder
    and, if it has one, of the pooler; the head keeps its initial weights.

    Raises CheckpointError if they do not fit.
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
    """Check that a run can start with the weights of its recipe; not needed once it has started.

    Raises CheckpointError if they are missing or do not fit the model, ConfigError if they were
    learnt with another vocabulary.
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


def inherit_attribution(recipe: Recipe, run: Path) -> Recipe:
    """The recipe whose attribution begins with that of the initial weights' text, because its
    licences apply to the new model too.

    Raises CheckpointError if the weights or the run's recipe cannot be read.
    """
    if recipe.loop.initial_weights is None:
        return recipe
    begun = run if has_begun(run) else initial_checkpoint(recipe)
    assert begun is not None
    theirs, own = read_run_recipe(begun).data.attribution, recipe.data.attribution
    if theirs in own:
        return recipe
    joined = theirs if own in theirs else f"{theirs}; {own}"
    return replace(recipe, data=replace(recipe.data, attribution=joined))
