"""Recipes: YAML files that are read into frozen dataclasses.

A recipe is data. `model.preset` names a preset of `training.models.configs.presets`; every other
key of `model` overrides one field of it. `${NAME}` in a path is replaced by an environment
variable. An unknown key is an error that names the most similar key.
"""

from __future__ import annotations

import dataclasses
import os
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from training.errors import ConfigError
from training.models.configs.architectures import ARCHITECTURES
from training.models.configs.bert import BertConfig, ClassifierConfig, EmbedderConfig
from training.models.configs.common import ModelConfig
from training.models.configs.language_model import LanguageModelConfig
from training.models.configs.presets import PRESETS
from training.models.configs.transformer import TransformerConfig
from training.recipe.checks import check_choice, nearest
from training.recipe.encoder_sections import (
    METRICS,
    DocumentFile,
    LabelledConfig,
    PretrainingConfig,
)
from training.recipe.filters import FILTERS, Filter
from training.recipe.sections import (
    AUTO,
    DECODED_SCORES,
    VOCABULARIES,
    DataConfig,
    LoopConfig,
    OptimConfig,
    ParallelFiles,
    TextConfig,
    TokenizerConfig,
)

__all__ = [
    "AUTO",
    "RECIPES",
    "VOCABULARIES",
    "DataConfig",
    "DocumentFile",
    "FineTuningRecipe",
    "LabelledConfig",
    "LanguageRecipe",
    "LoopConfig",
    "OptimConfig",
    "ParallelFiles",
    "PretrainingConfig",
    "PretrainingRecipe",
    "Recipe",
    "TextConfig",
    "TokenizerConfig",
    "TranslationRecipe",
    "apply_override",
    "expand",
    "load_recipe",
    "read_tree",
    "recipe_from_dict",
    "recipe_to_dict",
]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The recipe of one run. The model's architecture decides which subclass it is."""

    name: str
    model: ModelConfig
    data: DataConfig | TextConfig | PretrainingConfig | LabelledConfig
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Recipe):
    """The recipe of a translation model, which trains on parallel text."""

    data: DataConfig

    def __post_init__(self) -> None:
        if self.tokenizer.kind != "sentencepiece":
            raise ConfigError(
                "tokenizer.kind of a translation model must be 'sentencepiece', got "
                f"{self.tokenizer.kind!r}"
            )
        if self.data.subword_alpha and self.tokenizer.model_type != "unigram":
            raise ConfigError(
                "data.subword_alpha needs a unigram tokenizer, but tokenizer.model_type is "
                f"{self.tokenizer.model_type!r}; change one of the two"
            )
        _check_best_by(self, ("loss", *DECODED_SCORES))
        _check_alignment(self)
        _check_compile(self)
        if self.data.bpe_dropout and self.tokenizer.model_type != "bpe":
            raise ConfigError(
                "data.bpe_dropout needs a bpe tokenizer, but tokenizer.model_type is "
                f"{self.tokenizer.model_type!r}; change one of the two"
            )
        if all(self.has_ended(origin) for origin in range(len(self.data.corpora))):
            last = max(files.until_step or 0 for files in self.data.train if files.weight)
            raise ConfigError(
                f"data.train: until_step ends the last corpus at {last}, before loop.max_steps = "
                f"{self.loop.max_steps}; remove it from at least one corpus"
            )

    def has_ended(self, origin: int) -> bool:
        """Whether the last update of the run no longer trains on this corpus."""
        files = self.data.corpora[origin]
        ended = files.until_step is not None and files.until_step < self.loop.max_steps
        return ended or not files.weight


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(Recipe):
    """The recipe of a language model."""

    data: TextConfig

    def __post_init__(self) -> None:
        if self.tokenizer.kind == "wordpiece":
            raise ConfigError(
                "tokenizer.kind of a language model must be 'sentencepiece' or 'words', got "
                "'wordpiece'"
            )
        _check_best_by(self, ("loss",))
        _check_alignment(self)
        _check_compile(self)


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe(Recipe):
    """The recipe of an encoder's pretraining on plain text (Devlin et al. 2019)."""

    model: BertConfig
    data: PretrainingConfig

    def __post_init__(self) -> None:
        _check_encoder(self, self.data.max_length)
        _check_best_by(self, ("loss",))


@dataclass(frozen=True, kw_only=True)
class FineTuningRecipe(Recipe):
    """The recipe that fine-tunes an encoder on labels, or on pairs of similar texts."""

    model: ClassifierConfig | EmbedderConfig
    data: LabelledConfig

    def __post_init__(self) -> None:
        _check_encoder(self, self.data.max_length)
        _check_best_by(self, ("loss", *METRICS[self.data.kind]))
        if isinstance(self.model, EmbedderConfig) != (self.data.kind == "contrastive"):
            raise ConfigError(
                "model.architecture 'embedder' and data.kind 'contrastive' need each other, got "
                f"{self.model.architecture!r} and {self.data.kind!r}"
            )
        if isinstance(self.model, EmbedderConfig):
            return
        regression = self.data.kind == "regression"
        wanted = 1 if regression else len(self.data.labels)
        if self.model.num_classes != wanted:
            raise ConfigError(
                f"model.num_classes must be {wanted}, because data.labels are "
                f"{list(self.data.labels)}, got {self.model.num_classes}"
            )
        if regression and self.data.score_range is None:
            raise ConfigError("missing key 'data.score_range', which kind 'regression' needs")


def _check_encoder(recipe: PretrainingRecipe | FineTuningRecipe, max_length: int) -> None:
    if recipe.tokenizer.kind != "wordpiece":
        raise ConfigError(
            f"tokenizer.kind of an encoder must be 'wordpiece', got {recipe.tokenizer.kind!r}"
        )
    if max_length > recipe.model.max_positions:
        raise ConfigError(
            f"data.max_length must be at most model.max_positions = {recipe.model.max_positions}, "
            f"got {max_length}"
        )
    if recipe.loop.compile:
        raise ConfigError(
            "loop.compile is for translation and language models, got true for an encoder; set it "
            "to false"
        )
    _check_alignment(recipe)


def _check_best_by(recipe: Recipe, allowed: tuple[str, ...]) -> None:
    if recipe.loop.best_by not in allowed:
        raise ConfigError(
            f"loop.best_by of this model must be {' or '.join(map(repr, allowed))}, because its "
            f"validation measures nothing else, got {recipe.loop.best_by!r}"
        )


def _check_compile(recipe: Recipe) -> None:
    if not recipe.loop.compile:
        return
    for name in ("head_dropout", "encoder_layerdrop", "decoder_layerdrop", "halting"):
        if getattr(recipe.model, name, False):
            raise ConfigError(
                f"loop.compile needs a model that is the same in every update, but model.{name} = "
                f"{getattr(recipe.model, name)} changes it; turn one of the two off"
            )


def _check_alignment(recipe: Recipe) -> None:
    if not recipe.optim.alignment_weight:
        return
    if not isinstance(recipe.model, TransformerConfig):
        raise ConfigError(
            "optim.alignment_weight is for the source attention of a Transformer, but "
            f"model.architecture is {recipe.model.architecture!r}; set it to 0"
        )
    if recipe.model.decoder_layerdrop:
        raise ConfigError(
            "optim.alignment_weight trains a layer of the decoder that model.decoder_layerdrop = "
            f"{recipe.model.decoder_layerdrop} may leave out; set one of the two to 0"
        )
    if recipe.loop.compile:
        raise ConfigError(
            "loop.compile supports logits only, but optim.alignment_weight needs the attention "
            "too; turn one of the two off"
        )


RECIPES = Path(__file__).parents[1] / "recipes"
_PROPOSED = 3
"""Largest number of recipes that are proposed in place of an unknown one."""


def load_recipe(name: str, overrides: list[str]) -> Recipe:
    """Read a recipe by path, or by name from `training/recipes`, and apply `key=value` overrides.

    Raises ConfigError for an unknown recipe or key, and for a value of a wrong type or out of
    range.
    """
    path = Path(name)
    if not path.is_file():
        path = RECIPES / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in RECIPES.glob("*.yaml"))
        raise ConfigError(
            f"no recipe {name!r}{nearest(name, known, _PROPOSED)} (`ls {RECIPES}` lists all "
            f"{len(known)}; a path names a recipe elsewhere)"
        )
    tree = read_tree(path)
    for override in overrides:
        apply_override(tree, override)
    return recipe_from_dict(tree)


def read_tree(path: Path) -> dict[str, Any]:
    """The content of a recipe's YAML file.

    Raises ConfigError, which names the file, if the file cannot be read or is not a mapping.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: not a readable YAML file: {reason}") from error
    if not isinstance(tree, dict):
        found = "is empty" if tree is None else f"holds a {type(tree).__name__}"
        raise ConfigError(f"{path}: a recipe is a mapping of keys to values, but this {found}")
    return tree


def recipe_from_dict(tree: dict[str, Any]) -> Recipe:
    """Build a Recipe from plain data, after resolving the model's preset.

    Raises ConfigError for an unknown key or preset, and for a value of a wrong type or out of
    range.
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
                f"unknown preset {preset!r}{nearest(str(preset), PRESETS)} "
                f"(there are {sorted(PRESETS)})"
            )
        model = dataclasses.asdict(PRESETS[preset]) | model
    architecture = model.get("architecture", "transformer")
    check_choice("model.architecture", architecture, tuple(ARCHITECTURES))
    config = ARCHITECTURES[architecture]
    tree["model"] = _build(config, model, "model")
    recipe: Recipe = _build(_kind_of(config), tree, "")
    return recipe


def _kind_of(config: type[ModelConfig]) -> type[Recipe]:
    """The recipe class of a model's configuration."""
    if issubclass(config, ClassifierConfig | EmbedderConfig):
        return FineTuningRecipe
    if issubclass(config, BertConfig):
        return PretrainingRecipe
    return LanguageRecipe if issubclass(config, LanguageModelConfig) else TranslationRecipe


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data that `recipe_from_dict` reads back."""
    tree: dict[str, Any] = dataclasses.asdict(recipe)
    return tree


def expand(path: str) -> Path:
    """A path with each `${NAME}` replaced by the environment variable.

    Raises ConfigError if a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigError(
                f"{path}: the environment variable {match[1]} is not set; "
                f"set it to the folder that holds the text"
            )
        return os.environ[match[1]]

    return Path(re.sub(r"\$\{(\w+)\}", value, path))


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set one key of a recipe's plain data from a `key=value` text; the value is YAML.

    Raises ConfigError if the text has another form, or if a parent of the key is not a mapping.
    """
    key, separator, text = override.partition("=")
    if not separator:
        raise ConfigError(f"an override must be key=value, got {override!r}")
    *parents, last = key.split(".")
    node = tree
    for parent in parents:
        if node.get(parent) is None:
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise ConfigError(f"{key!r}: {parent!r} is a value and has no keys")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{key!r}: {text!r} is not a YAML value") from error


def _build(kind: Any, value: Any, where: str) -> Any:
    """Plain data as a value of the annotated type. Errors name the key."""
    if dataclasses.is_dataclass(value):
        return value  # already built
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{where or 'recipe'} must be a mapping, got {value!r}")
        if kind is Filter:
            if "name" not in value:
                raise ConfigError(f"missing key '{where}.name' (there are {sorted(FILTERS)})")
            check_choice(f"{where}.name", str(value["name"]), tuple(FILTERS))
            kind = FILTERS[str(value["name"])]
        hints = typing.get_type_hints(kind)
        prefix = f"{where}." if where else ""
        for key in value:
            if key not in hints:
                hint = nearest(str(key), hints)
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
        kinds = [a for a in arguments if a is not type(None)]
        return _build(type(value) if type(value) in kinds else kinds[0], value, where)
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
