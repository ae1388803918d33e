"""Reads the settings of a sentence-transformers folder: place of its Transformer, pooling, and
longest text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.encoders.tokenizer import TOKENIZER_SETTINGS
from export.importing.folder import CONFIG, read_json, read_objects, read_optional
from training.models.networks.bert import Pooling

_MODULES = "modules.json"
SENTENCES, _PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"


def transformer_folder(folder: Path) -> Path:
    """The folder of the model itself: a folder below if `modules.json` of sentence-transformers
    says so and this one has no model. Raises ExportError for a place outside."""
    path = folder / _MODULES
    if (folder / CONFIG).exists() or not path.exists():
        return folder
    places = [
        str(module.get("path", ""))
        for module in read_objects(path)
        if str(module.get("type", "")).endswith(".Transformer")
    ]
    below = folder / (places[0] if places else "")
    if not below.resolve().is_relative_to(folder.resolve()):
        raise ExportError(f"{path}: path of Transformer must be in the folder, got {places[0]!r}")
    return below


def read_pooling(folder: Path) -> tuple[Pooling | None, bool]:
    """The pooling of a sentence-transformers folder, and whether normalisation follows."""
    path = folder / _MODULES
    if not path.exists():
        return None, True
    kinds = {
        str(module.get("type", "")).rpartition(".")[2]: str(module.get("path", ""))
        for module in read_objects(path)
    }
    other = kinds.keys() - {"Transformer", "Pooling", "Normalize"}
    if other or "Pooling" not in kinds:
        raise ExportError(
            f"{path}: modules must be Transformer, Pooling and perhaps Normalize, got "
            f"{sorted(kinds)}"
        )
    place = folder / kinds["Pooling"] / CONFIG
    tree = read_json(place)
    prompts, _ = read_prompts(folder)
    if tree.get("include_prompt", True) is not True and any(prompts.values()):
        raise ExportError(
            f"{place}: include_prompt must be true, got {tree['include_prompt']!r}: bundles take "
            f"every token of a text into its vector, those of its prompt as well; remove prompts "
            f"from {_PROMPTS} if texts come without any"
        )
    modes = [key for key, on in tree.items() if key.startswith("pooling_mode") and on]
    known: dict[str, Pooling] = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
    }
    if len(modes) != 1 or modes[0] not in known:
        raise ExportError(f"{place}: one of {sorted(known)} must be true and no other, got {modes}")
    return known[modes[0]], "Normalize" in kinds


def most_tokens(folder: Path, sentences: dict[str, Any]) -> int:
    """Longest text in tokens, including special ones, from the settings of sentence-transformers,
    else of the tokenizer. Raises ExportError if these truncate texts at the beginning."""
    settings = read_optional(folder / TOKENIZER_SETTINGS)
    side = settings.get("truncation_side", "right")
    if side != "right":
        raise ExportError(
            f"{folder / TOKENIZER_SETTINGS}: truncation_side must be 'right', got {side!r}: of "
            "texts that are too long bundles keep the beginning; set it to 'right' if that will do"
        )
    limits = sentences.get("max_seq_length"), settings.get("model_max_length")
    # A tokenizer without such a limit writes 1e30.
    return next((most for most in limits if isinstance(most, int)), sys.maxsize)


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Prompts of sentence-transformers by name, and the name of the default one. Raises ExportError
    for invalid prompts."""
    path = folder / _PROMPTS
    tree = read_optional(path)
    prompts, name = tree.get("prompts") or {}, tree.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ExportError(f"{path}: prompts must map names to texts, got {prompts!r}")
    if name is not None and name not in prompts:
        raise ExportError(
            f"{path}: default_prompt_name must be null or one of prompts, {sorted(prompts)}, got "
            f"{name!r}"
        )
    return prompts, name
