"""What a run begins with where it begins with the weights of another one."""

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


def inherit_attribution(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with the origin of the text that its first weights were learnt from, before that
    of its own: whose licences held for those hold for what comes of them.

    Raises CheckpointError where the weights that it names, or the run's recipe, cannot be read.
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
