"""Makes a shallower model from a trained one by keeping some of its layers (Fan et al. 2019,
"Reducing Transformer Depth on Demand with Structured Dropout", section 3).
"""

from __future__ import annotations

import itertools
import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.corpora.pairs import Pair, read_pairs
from training.errors import CheckpointError, ConfigError
from training.loop.optim import build_optimizer
from training.loop.updates import Place
from training.models import ModelConfig, TransformerConfig, TranslationModel, build_network
from training.models.configs.language_model import LanguageModelConfig
from training.models.configs.transformer import CONVOLUTIONS
from training.recipe.config import VOCABULARIES, Recipe, TranslationRecipe, recipe_to_dict
from training.runs.checkpoint import find_checkpoint, new_folder, read_weights, save_checkpoint
from training.runs.claim import write_claim
from training.runs.folder import (
    TOKENIZER_FILE,
    VALIDATION_LANGUAGES,
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
    VALIDATION_TEXT,
    load_tokenizer,
    read_run_recipe,
)
from training.runs.replacing import check_free
from training.runs.selection import BestSoFar
from training.tasks.validation import validate

logger = logging.getLogger(__name__)

SIDES = ("encoder", "decoder")
MOST_CHOICES = 1000
"""Largest number of combinations of layers that a search tries for each side."""
_BESIDE = (
    *VOCABULARIES.values(),
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
    VALIDATION_LANGUAGES,
    VALIDATION_TEXT,
)
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Pruned:
    """The result of `prune`."""

    checkpoint: Path
    encoder_layers: tuple[int, ...] | None
    """Kept layers of each side, numbered from 0 in the original model; None means all."""
    decoder_layers: tuple[int, ...] | None
    parameters: int


def prune(
    path: Path,
    out: Path,
    *,
    keep: Mapping[str, Sequence[int]] | None = None,
    depths: Mapping[str, int] | None = None,
    method: str = "every_other",
    sentences: int = 200,
    force: bool = False,
) -> Pruned:
    """Write a run `out` with fewer layers than a run or checkpoint folder.

    `keep` lists the layers of a side (`encoder`, `decoder`), from 0. `depths` is their number, with
    `method` choosing them: `every_other` at even distances; `search` by the validation loss of all
    combinations on so many `sentences` of the run, one side after the other; `learnt` those that
    training kept most often. A side in neither stays unchanged. The recipe of `out` is the run's
    with the new depths and without LayerDrop. Its only checkpoint is step 0; `train` continues from
    it with a new optimiser.

    Raises ConfigError if the model cannot be pruned so, if `out` exists and `force` is not given,
    or if the run would be lost; CheckpointError if the run cannot be read.
    """
    keep, depths = dict(keep or {}), dict(depths or {})
    check_free(out, [path], force=force)
    checkpoint = find_checkpoint(path)
    recipe = read_run_recipe(checkpoint)
    _check(recipe.model, keep, depths, method)
    weights = read_weights(checkpoint)
    search = _Search(recipe, checkpoint, sentences) if method == "search" else None
    model, kept = recipe.model, dict[str, tuple[int, ...]]()
    for side in SIDES:
        if side in depths:
            kept[side] = _choose(model, weights, side, depths[side], method, search)
        elif side in keep:
            kept[side] = tuple(keep[side])
        else:
            continue
        logger.info("%s: layers %s stay", side, ", ".join(map(str, kept[side])))
        model, weights = cut(model, weights, side, kept[side])
    folder = _write(replace(recipe, model=model), weights, checkpoint, out)
    parameters = sum(value.numel() for value in weights.values())
    return Pruned(folder, kept.get("encoder"), kept.get("decoder"), parameters)


def cut(
    model: ModelConfig, weights: Weights, side: str, layers: Sequence[int]
) -> tuple[ModelConfig, Weights]:
    """Configuration and weights of a model with only these layers on one side; the other side
    stays."""
    weights = dict(_renumbered(weights, _stack_name(model, side), layers))
    other = "decoder" if side == "encoder" else "encoder"
    sizes: dict[str, Any] = {}
    if isinstance(model, TransformerConfig) and getattr(model, f"{side}_mixing") in CONVOLUTIONS:
        widths = model.kernel_sizes(side)
        sizes[f"{side}_kernel_sizes"] = tuple(widths[layer] for layer in layers)
    sizes |= {
        f"num_{side}_layers": len(layers),
        f"{side}_layerdrop": 0.0,
        "learns_layerdrop": model.learns_layerdrop and getattr(model, f"{other}_layerdrop") > 0.0,
    }
    return replace(model, **sizes), weights


def _renumbered(
    weights: Weights, prefix: str, layers: Sequence[int]
) -> Iterator[tuple[str, Tensor]]:
    numbers = {str(old): new for new, old in enumerate(layers)}
    for name, value in weights.items():
        if not name.startswith(f"{prefix}."):
            yield name, value
            continue
        number, _, rest = name.removeprefix(f"{prefix}.").partition(".")
        if number in numbers:
            yield f"{prefix}.{numbers[number]}.{rest}", value


def _check(
    model: ModelConfig, keep: dict[str, Sequence[int]], depths: dict[str, int], method: str
) -> None:
    if not keep and not depths:
        raise ConfigError(
            "prune needs to know which layers stay: give --encoder-layers, --decoder-layers, "
            "--keep-encoder or --keep-decoder"
        )
    if isinstance(model, TransformerConfig) and model.share_layers:
        raise ConfigError(
            "share_layers: true has one layer for all steps, which cannot be pruned; train "
            "with fewer num_encoder_layers or num_decoder_layers instead"
        )
    if isinstance(model, LanguageModelConfig) and model.attention != "full":
        raise ConfigError(
            f"attention: {model.attention} gives each layer a reach by its number, which pruning "
            "changes; only attention: full can be pruned"
        )
    for side in SIDES:
        there = getattr(model, f"num_{side}_layers")
        if side in keep and side in depths:
            raise ConfigError(f"--keep-{side} and --{side}-layers are both given; leave out one")
        depth = depths.get(side)
        if depth is not None and not 1 <= depth <= there:
            raise ConfigError(f"--{side}-layers must be 1 to {there}, got {depth}")
        layers = list(keep.get(side, []))
        if side in keep and (not layers or layers != sorted(set(layers) & set(range(there)))):
            raise ConfigError(
                f"--keep-{side} must name layers of 0 to {there - 1}, each once and in ascending "
                f"order, got {layers}"
            )
    if method == "learnt" and not model.learns_layerdrop:
        raise ConfigError(
            "--method learnt needs a rate of each layer, and this run was trained with "
            "model.learns_layerdrop: false; use every_other or search"
        )


class _Search:
    """Validation loss of a run's model with some of its layers."""

    def __init__(self, recipe: Recipe, checkpoint: Path, sentences: int) -> None:
        if not isinstance(recipe, TranslationRecipe):
            raise ConfigError(
                "--method search reads the validation pairs of a translation run, this is a "
                "language model's; use every_other or a list"
            )
        self._recipe = replace(recipe, loop=replace(recipe.loop, bleu_sentences=0))
        folder = _run_of(checkpoint, VALIDATION_SOURCE)
        pairs = read_pairs(folder / VALIDATION_SOURCE, folder / VALIDATION_TARGET)
        languages = folder / VALIDATION_LANGUAGES
        directions = [0] * len(pairs)
        if languages.is_file():
            known = [" ".join(direction) for direction in recipe.data.directions]
            directions = [known.index(line) for line in languages.read_text().splitlines()]
        chosen = range(0, len(pairs), max(1, len(pairs) // sentences))
        self._pairs: list[Pair] = [pairs[i] for i in chosen]
        self._directions = [directions[i] for i in chosen]
        self._tokenizer = load_tokenizer(_run_of(checkpoint, TOKENIZER_FILE) / TOKENIZER_FILE)

    def loss(self, config: ModelConfig, weights: Weights) -> float:
        """Loss in nats per label."""
        model = build_network(config)
        model.load_state_dict(weights)
        assert isinstance(model, TranslationModel)
        values = validate(
            model.eval(), self._tokenizer, self._pairs, self._directions, self._recipe
        )
        return float(values["loss"])


def _choose(
    model: ModelConfig,
    weights: Weights,
    side: str,
    depth: int,
    method: str,
    search: _Search | None,
) -> tuple[int, ...]:
    """The layers to keep."""
    there = getattr(model, f"num_{side}_layers")
    if method == "every_other":
        # Of 6 layers, 3 are 0, 2, 4 and 4 are 0, 1, 3, 4: depth d goes where d % (N / gone) is 0.
        return tuple(number * there // depth for number in range(depth))
    if search is None:
        learnt = weights.get(f"{_stack_name(model, side)}.keep_logits")
        if learnt is None:
            raise ConfigError(
                f"--method learnt: the {side} has learnt no rates, as model.{side}_layerdrop is 0; "
                f"name its layers with --keep-{side}"
            )
        return tuple(sorted(learnt.topk(depth).indices.tolist()))
    count = math.comb(there, depth)
    if count > MOST_CHOICES:
        raise ConfigError(
            f"--method search would try {count} combinations of {depth} of {there} layers, more "
            f"than {MOST_CHOICES}; use every_other, or --keep-{side}"
        )
    choices = itertools.combinations(range(there), depth)
    losses = {layers: search.loss(*cut(model, weights, side, layers)) for layers in choices}
    best = min(losses, key=losses.__getitem__)
    logger.info("%s: validation loss %.4f, best of %d", side, losses[best], count)
    return best


def _stack_name(model: ModelConfig, side: str) -> str:
    """Name of the submodule that holds the layers of a side."""
    with torch.device("meta"):
        return build_network(model).stacks[side]


def _run_of(checkpoint: Path, file: str) -> Path:
    """The folder of a checkpoint's run that contains a file."""
    for folder in (checkpoint, checkpoint.parent, checkpoint.parent.parent):
        if (folder / file).is_file():
            return folder
    raise CheckpointError(f"{checkpoint}: no {file} there or in the run folder above")


def _write(recipe: Recipe, weights: Weights, checkpoint: Path, out: Path) -> Path:
    """Write a run folder with one checkpoint, of step 0; returns the checkpoint's folder."""
    model = build_network(recipe.model)
    model.load_state_dict(weights)
    state: dict[str, Any] = {
        "step": 0,
        **asdict(Place()),
        **BestSoFar(recipe.loop.best_by).state(),
        "recipe": recipe_to_dict(recipe),
        "pruned": str(checkpoint),
    }
    step = Path("checkpoints", f"step_{0:08d}")
    with new_folder(out) as folder:
        for name in _BESIDE:
            for near in (checkpoint, checkpoint.parent, checkpoint.parent.parent):
                if (near / name).is_file():
                    shutil.copyfile(near / name, folder / name)
                    break
        write_claim(recipe, folder)
        save_checkpoint(folder / step, model, build_optimizer(model, recipe.optim), state)
    return out / step
