"""Recipes: YAML read into frozen dataclasses; an unknown key is an error with the nearest one.

A recipe is data. `model.preset` names a preset of `training.models.config`; every other key of
`model` overrides one field of it. `${NAME}` in a path is replaced by an environment variable.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from training.errors import ConfigError
from training.models.config import ARCHITECTURES, PRESETS, ModelConfig

_NO_LIMIT = float("inf")


def _check_range(name: str, value: float, low: float, high: float = _NO_LIMIT) -> None:
    if not low <= value <= high:  # written so that NaN fails
        allowed = f">= {low}" if high == _NO_LIMIT else f"in [{low}, {high}]"
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = _nearest(value, choices) or f"; there are {list(choices)}"
        raise ConfigError(f"unknown {name} {value!r}{hint}")


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Two line-aligned text files, plain or .gz."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora, cleaning limits and languages."""

    source_language: str
    target_language: str
    train: tuple[ParallelFiles, ...]
    validation: ParallelFiles | None = None
    """Text for early stopping; where absent, `held_out_pairs` training pairs are set apart."""
    held_out_pairs: int = 2000
    """Pairs held out of training, whole groups of equal source sentences at a time."""
    attribution: str = ""
    """Origin and licence of the text; it is carried into the bundle."""
    max_pieces: int = 200
    """A longer side (in pieces) drops the pair."""
    max_length_ratio: float = 3.0
    """A greater ratio of characters between the sides drops the pair (short pairs are let by)."""
    token_budget: int = 4096
    """Rows x max(source, target) of one batch, joint models: rows x source x target; padding
    included."""
    subword_alpha: float = 0.0
    """Subword regularisation (Kudo 2018): 0 is off, 0.1 to 0.5 is usual; smaller is noisier.

    It needs a unigram tokenizer.
    """

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name one pair of files at least, got none")
        least = 0 if self.validation is not None else 1
        _check_range("data.held_out_pairs", self.held_out_pairs, least)
        _check_range("data.max_pieces", self.max_pieces, 1)
        _check_range("data.max_length_ratio", self.max_length_ratio, 1)
        _check_range("data.token_budget", self.token_budget, 1)
        _check_range("data.subword_alpha", self.subword_alpha, 0)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """SentencePiece training; the vocabulary is joint and its size is the model's vocab_size."""

    model_type: str = "unigram"
    character_coverage: float = 1.0
    max_sentences: int = 1_000_000
    file: str | None = None
    """An existing SentencePiece model to use instead of training one."""

    def __post_init__(self) -> None:
        _check_choice("tokenizer.model_type", self.model_type, ("unigram", "bpe", "char", "word"))
        _check_range("tokenizer.character_coverage", self.character_coverage, 0.9, 1)
        _check_range("tokenizer.max_sentences", self.max_sentences, 1)


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Adam with decoupled weight decay, and the learning-rate schedule."""

    peak_lr: float = 1e-3
    schedule: str = "inverse_sqrt"
    """`inverse_sqrt`, `linear` or `cosine`; the last two reach `final_lr` at max_steps."""
    warmup_steps: int = 1000
    final_lr: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """0 is off."""
    label_smoothing: float = 0.1
    accumulation: int = 1
    """Batches summed into one update."""

    def __post_init__(self) -> None:
        _check_choice("optim.schedule", self.schedule, ("inverse_sqrt", "linear", "cosine"))
        _check_range("optim.warmup_steps", self.warmup_steps, 1)
        _check_range("optim.accumulation", self.accumulation, 1)
        _check_range("optim.label_smoothing", self.label_smoothing, 0, 0.999)
        for beta in self.betas:
            _check_range("optim.betas", beta, 0, 0.99999)
        for name in ("peak_lr", "final_lr", "eps", "weight_decay", "clip_norm"):
            _check_range(f"optim.{name}", getattr(self, name), 0)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long to train, and how often to look."""

    max_steps: int = 100_000
    log_every: int = 50
    validate_every: int = 1000
    checkpoint_every: int = 500
    keep_checkpoints: int = 5
    patience: int = 0
    """Validations without a better loss before stopping; 0 is off."""
    bleu_sentences: int = 200
    """Validation sentences decoded for BLEU and chrF; 0 is off."""
    bleu_beam_size: int = 1
    bf16: bool = True
    """Autocast to bfloat16; the weights and the optimiser stay in fp32."""
    activation_checkpointing: bool = False
    """Keep only the inputs of layers for the gradient: less memory, about a third more time."""
    device: str = "cpu"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "keep_checkpoints",
        ):
            _check_range(f"loop.{name}", getattr(self, name), 1)
        for name in ("patience", "bleu_sentences", "seed"):
            _check_range(f"loop.{name}", getattr(self, name), 0)
        _check_range("loop.bleu_beam_size", self.bleu_beam_size, 1, 64)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One published run."""

    name: str
    model: ModelConfig
    data: DataConfig
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        if self.data.subword_alpha and self.tokenizer.model_type != "unigram":
            raise ConfigError(
                "data.subword_alpha samples from a unigram tokenizer, tokenizer.model_type is "
                f"{self.tokenizer.model_type!r}; set one of the two"
            )


RECIPES = Path(__file__).parent / "recipes"


def load_recipe(name: str, overrides: list[str]) -> Recipe:
    """Read a recipe by path or by its name under `training/recipes`, apply `key=value` overrides.

    Raises ConfigError for an unknown recipe or key, and a value of a wrong type or out of range.
    """
    path = Path(name)
    if not path.is_file():
        path = RECIPES / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in RECIPES.glob("*.yaml"))
        raise ConfigError(f"no recipe {name!r}{_nearest(name, known)} (there are {known})")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a readable YAML file: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a recipe is a mapping, got {type(tree).__name__}")
    for override in overrides:
        _apply_override(tree, override)
    return recipe_from_dict(tree)


def recipe_from_dict(tree: dict[str, Any]) -> Recipe:
    """Build a Recipe from plain data; a model preset is resolved first.

    Raises ConfigError for an unknown key or preset, and a value of a wrong type or out of range.
    """
    tree = dict(tree)
    given = tree.get("model") or {}
    if not isinstance(given, dict):
        raise ConfigError(f"model must be a mapping, got {given!r}; a preset is model.preset=NAME")
    model = dict(given)
    preset = model.pop("preset", None)
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ConfigError(
                f"unknown preset {preset!r}{_nearest(str(preset), PRESETS)} "
                f"(there are {sorted(PRESETS)})"
            )
        model = dataclasses.asdict(PRESETS[preset]) | model
    architecture = model.get("architecture", "transformer")
    _check_choice("model.architecture", architecture, tuple(ARCHITECTURES))
    tree["model"] = _build(ARCHITECTURES[architecture], model, "model")
    recipe: Recipe = _build(Recipe, tree, "")
    return recipe


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain data that `recipe_from_dict` reads back."""
    tree: dict[str, Any] = dataclasses.asdict(recipe)
    return tree


def expand(path: str) -> Path:
    """A path with its `${NAME}` parts replaced from the environment.

    Raises ConfigError where a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigError(
                f"{path}: the environment variable {match[1]} is not set; "
                f"set it to the folder that holds the text"
            )
        return os.environ[match[1]]

    return Path(re.sub(r"\$\{(\w+)\}", value, path))


def _nearest(word: str, known: typing.Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator:
        raise ConfigError(f"an override is key=value, got {override!r}")
    *parents, last = key.split(".")
    node = tree
    for parent in parents:
        if node.get(parent) is None:
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise ConfigError(f"{key!r}: {parent!r} holds no further keys")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{key!r}: {text!r} is not a YAML value") from error


def _build(kind: Any, value: Any, where: str) -> Any:
    """Plain data to the annotated type, with errors that name the key."""
    if dataclasses.is_dataclass(value):
        return value  # built already
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{where or 'recipe'} must be a mapping, got {value!r}")
        hints = typing.get_type_hints(kind)
        prefix = f"{where}." if where else ""
        for key in value:
            if key not in hints:
                hint = _nearest(str(key), hints)
                hint = hint.replace("'", f"'{prefix}", 1) if hint else hint
                raise ConfigError(f"unknown key '{prefix}{key}'{hint}")
        missing = [
            f.name
            for f in dataclasses.fields(kind)
            if f.name not in value
            and f.default is dataclasses.MISSING
            and f.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise ConfigError(f"missing key '{prefix}{missing[0]}'")
        return kind(**{key: _build(hints[key], v, f"{prefix}{key}") for key, v in value.items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _build(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        element = arguments[0]
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise ConfigError(f"{where} must have {len(arguments)} items, got {len(value)}")
        return tuple(_build(element, item, f"{where}[{i}]") for i, item in enumerate(value))
    return _scalar(kind, value, where)


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:  # YAML reads 1e-3 as text
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where} must be of type {kind.__name__}, got {value!r}")
    return value
