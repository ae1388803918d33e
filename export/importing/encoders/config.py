"""The sizes and the labels in an encoder's `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.encoders.family import FAMILIES, EncoderFamily
from export.importing.model import ACTIVATIONS
from training.errors import ConfigError
from training.models import BertConfig


def encoder_config(tree: dict[str, Any], path: Path) -> BertConfig:
    """The sizes that a `config.json` tells; raises ExportError for what is of no known family."""
    family = family_of(tree, path)
    for key, wanted in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if tree.get(key, wanted) != wanted:
            raise ExportError(f"{path}: {key} must be {wanted!r}, got {tree.get(key)!r}")
    activation = family.sizes["activation"]
    if tree.get(activation) not in ACTIVATIONS:
        raise ExportError(
            f"{path}: {activation} must be one of {sorted(ACTIVATIONS)}, "
            f"got {tree.get(activation)!r}"
        )
    sizes = family.sizes
    try:
        segments = tree[family.segments] if family.segments else 0
        return BertConfig(
            model_dim=tree[sizes["model_dim"]],
            num_heads=tree[sizes["num_heads"]],
            ffn_dim=tree[sizes["ffn_dim"]],
            num_encoder_layers=tree[sizes["num_encoder_layers"]],
            vocab_size=tree["vocab_size"],
            max_positions=tree["max_position_embeddings"] - family.skipped_positions(tree),
            # The vector of the only kind is part of each position's.
            num_segments=0 if segments == 1 else segments,
            norm_eps=family.norm_eps or tree[sizes["norm_eps"]],
            activation=ACTIVATIONS[tree[activation]],
            dropout=tree.get(sizes["dropout"], 0.1),
            attention_dropout=tree.get(sizes["attention_dropout"], 0.1),
            pooler=family.pooler,
        )
    except KeyError as error:
        raise ExportError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ConfigError) as error:
        raise ExportError(f"{path}: {error}") from error


def family_of(tree: dict[str, Any], path: Path) -> EncoderFamily:
    kind = str(tree.get("model_type"))
    if kind not in FAMILIES:
        raise ExportError(f"{path}: model_type must be one of {list(FAMILIES)}, got {kind!r}")
    return FAMILIES[kind]


def read_labels(tree: dict[str, Any], count: int, path: Path) -> tuple[str, ...]:
    """The names of so many classes in order; those of `config.json`, or LABEL_0 and so on."""
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
