"""What the options of folders of `transformers` tell in one way for most decoders: sizes, rotary
positions and what each layer sees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import Options, read_weights
from export.importing.language_models.model import (
    HARMLESS,
    ImportedLanguageModel,
    loaded,
    read_chat_template,
    read_tokenizer,
    special_ids_of,
)
from export.importing.language_models.state import Names, State, decoder_state
from export.importing.model import generation_options

SIZES: dict[str, Any] = {
    "activation": "swiglu",
    "norm_type": "rms",
    "embedding_scale": "none",
    "positions": "rotary",
}
"""What all of them have in common."""

FULL, SLIDING = "full_attention", "sliding_attention"
_SCALING = "rope_scaling"
_SCALED_BY: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "rotary_factor"},
    "llama3": {
        "factor": "rotary_factor",
        "low_freq_factor": "rotary_low_factor",
        "high_freq_factor": "rotary_high_factor",
        "original_max_position_embeddings": "rotary_trained_length",
    },
}
"""Ways to scale rotary positions: what each needs, and what we call it."""
_ROTARY = frozenset({"type", "rope_type", "rope_theta", *_SCALED_BY["llama3"]})
"""What their options may be beside `partial_rotary_factor`."""


def read_sizes(
    options: Options, *, eps: float = 1e-6, tied: bool = False, kv_heads: int | None = None
) -> dict[str, Any]:
    """Sizes, which all families here name alike; `eps`, `tied` and `kv_heads` are the family's
    defaults, of which None is as many as heads of queries."""
    return {
        **SIZES,
        "model_dim": options.integer("hidden_size"),
        "num_heads": options.integer("num_attention_heads"),
        "num_kv_heads": options.given("num_key_value_heads", kv_heads) or 0,
        "num_decoder_layers": options.integer("num_hidden_layers"),
        "ffn_dim": options.integer("intermediate_size"),
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.get("rms_norm_eps", eps),
        "tie_embeddings": options.get("tie_word_embeddings", tied),
    }


def rotary_options(options: Options) -> tuple[str, dict[str, Any]]:
    """What is told of rotary positions in one place, and the option that tells it."""
    scaling = options.get(_SCALING)
    name, told = "rope_parameters", options.get("rope_parameters")
    if told is None:
        name, told = _SCALING, scaling or {}
    elif scaling not in (None, told):
        raise ExportError(
            f"{options.path}: rope_parameters and {_SCALING} tell different things of rotary "
            "positions; keep the one that is right"
        )
    if not isinstance(told, dict):
        raise ExportError(f"{options.path}: {name} must be a JSON object, got {told!r}")
    base = options.get("rope_theta")
    return name, {**({} if base is None else {"rope_theta": base}), **told}


def read_rotary(options: Options, base: float = 10000.0) -> dict[str, Any]:
    """The base of rotary positions and how they are scaled; `base` is the family's default. Raises
    ExportError for a way that is not known."""
    name, told = rotary_options(options)
    return rotary_sizes(options.path, name, told, base)


def rotary_sizes(path: Path, name: str, told: dict[str, Any], base: float) -> dict[str, Any]:
    """The same of what the option `name` tells."""
    kind = told.get("rope_type", told.get("type", "default"))
    if kind not in _SCALED_BY:
        raise ExportError(
            f"{path}: {name} of the type {kind!r} is not supported; it must be one of "
            f"{', '.join(map(repr, _SCALED_BY))}"
        )
    partial = told.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ExportError(
            f"{path}: {name}: partial_rotary_factor {partial!r} is not supported for this family; "
            "it must be 1.0"
        )
    check_rotary(path, name, told)
    found: dict[str, Any] = {"rotary_base": float(told.get("rope_theta", base))}
    if kind == "default":
        return found
    missing = [key for key in _SCALED_BY[kind] if not isinstance(told.get(key), int | float)]
    if missing:
        raise ExportError(f"{path}: {name} of the type {kind!r} needs a number {missing[0]}")
    found["rotary_scaling"] = kind
    return found | {ours: told[key] for key, ours in _SCALED_BY[kind].items()}


def turned_features(path: Path, count: int, width: int) -> int:
    """How many features of a head are turned, 0 for all; raises ExportError for a number that is
    odd, none, or more than a head has."""
    if count % 2 or not 0 < count <= width:
        raise ExportError(
            f"{path}: rotary positions must turn an even number of the {width} features of a head, "
            f"got {count}"
        )
    return 0 if count == width else count


def check_rotary(path: Path, name: str, told: dict[str, Any], *others: str) -> None:
    """Raise ExportError for something told of rotary positions that is not known."""
    known = {*_ROTARY, "partial_rotary_factor", *others}
    for key in sorted(told.keys() - known):
        raise ExportError(
            f"{path}: {name}: {key!r} ({told[key]!r}) is not known; what is supported: "
            f"{', '.join(sorted(known))}"
        )


def window_of(width: int | None, longest: int) -> dict[str, Any]:
    """The sizes of a sliding window: each layer sees the last `width` positions, its own among
    them; nothing where that is as much as there may be."""
    if width is None or width >= longest:
        return {}
    return {"attention": "cascade", "first_window": width, "window_multiplier": 1}


def windows_of(kinds: Sequence[str], width: int | None) -> dict[str, Any]:
    """The sizes of layers of these kinds, of which some see a window of `width` positions; nothing
    where none does."""
    if width is None or SLIDING not in kinds:
        return {}
    windows = tuple(width if kind == SLIDING else 0 for kind in kinds)
    return {"attention": "windows", "layer_windows": windows}


def layer_kinds(options: Options, count: int, default: Sequence[str]) -> list[str]:
    """Which layers see a window, by `layer_types`, or as `default` says where it is not there;
    raises ExportError for other kinds of layers."""
    kinds = options.get("layer_types") or list(default)
    if not isinstance(kinds, list) or len(kinds) != count or not set(kinds) <= {FULL, SLIDING}:
        raise ExportError(
            f"{options.path}: layer_types must be {FULL!r} or {SLIDING!r} for each of the {count} "
            f"layers, got {kinds!r}"
        )
    return kinds


def sometimes_sliding(options: Options, count: int) -> dict[str, Any]:
    """The windows of Qwen: of the layers from `max_window_layers` on, where `use_sliding_window`
    says so, or as `layer_types` tells."""
    used, width = options.get("use_sliding_window", False), options.given("sliding_window", 4096)
    first = options.get("max_window_layers", 28)
    sliding = used and width is not None
    default = [SLIDING if sliding and layer >= first else FULL for layer in range(count)]
    kinds = layer_kinds(options, count, default)
    return windows_of(kinds, width if used else None)


def read_decoder(
    folder: Path,
    options: Options,
    sizes: dict[str, Any],
    names: Names,
    kind: str,
    longest: int,
    harmless: Sequence[str] = (),
) -> ImportedLanguageModel:
    """The model of a folder whose options have been read into `sizes`. Raises ExportError for an
    option that nobody has read and that is not `harmless`, and for what is wrong with its files."""
    special_ids, other_ends = special_ids_of(
        options, generation_options(folder), sizes["vocab_size"]
    )
    options.must_be(False, "is_encoder_decoder")
    options.finish({*HARMLESS, *harmless})
    weights = read_weights(folder)
    for number in range(sizes["num_decoder_layers"]):  # computed here
        for place in _COMPUTED:
            weights.drop(place.format(number))
    state: State = decoder_state(weights, options.path, sizes, names)
    return ImportedLanguageModel(
        f"{kind} of Hugging Face transformers",
        loaded(options.path, sizes, state),
        read_tokenizer(folder),
        special_ids,
        longest,
        read_chat_template(folder),
        other_ends=other_ends,
    )


_COMPUTED = (
    "model.layers.{}.self_attn.rotary_emb.inv_freq",
    "gpt_neox.layers.{}.attention.rotary_emb.inv_freq",
    "gpt_neox.layers.{}.attention.bias",
    "gpt_neox.layers.{}.attention.masked_bias",
)
"""What older files have beside weights: frequencies and masks."""
