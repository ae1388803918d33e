"""Reads the sizes and labels of an encoder's `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.encoders.family import FAMILIES, EncoderFamily
from export.importing.folder import Options
from export.importing.model import ACTIVATIONS
from training.errors import ConfigError
from training.models import BertConfig


def encoder_config(tree: dict[str, Any], path: Path) -> BertConfig:
    """The sizes in a `config.json`; raises ExportError for an unknown family."""
    family, options = family_of(tree, path), Options(path, tree)
    for key, wanted in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        # Families without a table of positions state arbitrary values here.
        if options.given(key, wanted) != wanted and (key == "is_decoder" or family.positions):
            raise ExportError(f"{path}: {key} must be {wanted!r}, got {tree.get(key)!r}")
    try:
        sizes = _sizes(options, family)
        # The family's own options come last, and win.
        config = BertConfig(**{**sizes, **family.more(options)})
    except ConfigError as error:
        raise ExportError(f"{path}: {error}") from error
    options.get("model_type")
    options.get("classifier_pooling")  # which the classifier has
    if family.harmless is not None:
        options.finish(family.harmless)
    return config


def _sizes(options: Options, family: EncoderFamily) -> dict[str, Any]:
    """The fields common to all families; raises ExportError if one is missing."""
    names = family.sizes

    activation = options.get(names["activation"])
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ExportError(
            f"{options.path}: {names['activation']} must be one of {sorted(ACTIVATIONS)}, "
            f"got {activation!r}"
        )
    segments = options.integer(family.segments) if family.segments else 0
    skipped = family.skipped_positions(options)
    return {
        "model_dim": options.integer(names["model_dim"]),
        "num_heads": options.integer(names["num_heads"]),
        "ffn_dim": options.integer(names["ffn_dim"]),
        "num_encoder_layers": options.integer(names["num_encoder_layers"]),
        "vocab_size": options.integer("vocab_size"),
        "max_positions": options.integer("max_position_embeddings") - skipped,
        # The vector of the only kind is part of each position's.
        "num_segments": 0 if segments == 1 else segments,
        "norm_eps": family.norm_eps or options.number(names["norm_eps"]),
        "activation": ACTIVATIONS[activation],
        "dropout": options.number(names["dropout"], 0.1),
        "attention_dropout": options.number(names["attention_dropout"], 0.1),
        "pooler": family.pooler,
    }


def family_of(tree: dict[str, Any], path: Path) -> EncoderFamily:
    kind = str(tree.get("model_type"))
    if kind not in FAMILIES:
        raise ExportError(f"{path}: model_type must be one of {list(FAMILIES)}, got {kind!r}")
    return FAMILIES[kind]


def read_labels(tree: dict[str, Any], count: int, path: Path) -> tuple[str, ...]:
    """The names of that many classes in order, from `config.json`, or else LABEL_0 and so on."""
    names = tree.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
    if isinstance(names, list):
        if len(names) != count:
            raise ExportError(f"{path}: id2label has {len(names)} names, of {count} classes")
        names = {str(number): name for number, name in enumerate(names)}
    if not isinstance(names, dict):
        raise ExportError(
            f"{path}: id2label must map numbers to names, or list the names, got {names!r}"
        )
    try:
        labels = tuple(str(names[str(number)]) for number in range(count))
    except KeyError as error:
        raise ExportError(f"{path}: id2label has no {error.args[0]}, of {count} classes") from error
    for number, label in enumerate(map(names.get, map(str, range(count)))):
        if label is None or isinstance(label, list | dict):
            raise ExportError(
                f"{path}: id2label must have one name for class {number}, got {label!r}; write a "
                "name there"
            )
    if tree.get("problem_type") == "multi_label_classification":
        raise ExportError(f"{path}: problem_type multi_label_classification is not supported")
    return labels
