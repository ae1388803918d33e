"""Options that have the same form in most decoders' folders of `transformers`: sizes, and the
positions that each layer sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import Options, Weights, read_weights
from export.importing.language_models.model import (
    HARMLESS,
    ImportedLanguageModel,
    loaded,
    read_chat_template,
    read_tokenizer,
    special_ids_of,
)
from export.importing.language_models.rotary import scale_turned, stretched
from export.importing.language_models.state import Names, State, decoder_state
from export.importing.model import generation_options

SIZES: dict[str, Any] = {
    "activation": "swiglu",
    "norm_type": "rms",
    "embedding_scale": "none",
    "positions": "rotary",
}
"""Settings that all of these families have in common."""

FULL, SLIDING = "full_attention", "sliding_attention"
WIDEST = 2**20
"""Widest window, whose positions are listed for each layer."""


def read_sizes(
    options: Options, *, eps: float = 1e-6, tied: bool = False, kv_heads: int | None = None
) -> dict[str, Any]:
    """The sizes, which have the same names in all families here. `eps`, `tied` and `kv_heads` are
    the family's defaults; None stands for as many as heads of queries."""
    return {
        **SIZES,
        "model_dim": options.integer("hidden_size"),
        "num_heads": options.integer("num_attention_heads"),
        "num_kv_heads": options.integer_or_none("num_key_value_heads", kv_heads) or 0,
        "num_decoder_layers": options.integer("num_hidden_layers"),
        "ffn_dim": options.integer("intermediate_size"),
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.number("rms_norm_eps", eps),
        "tie_embeddings": options.flag("tie_word_embeddings", tied),
    }


def read_window(options: Options, default: int | None) -> int | None:
    """The positions that a layer with a window sees; null stands for all."""
    return options.integer_or_none("sliding_window", default, least=1, most=WIDEST)


def window_of(width: int | None, longest: int) -> dict[str, Any]:
    """The sizes of a sliding window: each layer sees the last `width` positions, its own among
    them; nothing if that is as much as there may be."""
    if width is None or width >= longest:
        return {}
    return {"attention": "cascade", "first_window": width, "window_multiplier": 1}


def windows_of(kinds: Sequence[str], width: int | None) -> dict[str, Any]:
    """The settings of layers of these kinds, some of which see a window of `width` positions; empty
    if none does."""
    if width is None or SLIDING not in kinds:
        return {}
    windows = tuple(width if kind == SLIDING else 0 for kind in kinds)
    return {"attention": "windows", "layer_windows": windows}


def layer_kinds(options: Options, count: int, default: Sequence[str]) -> list[str]:
    """The kind of each layer, one that sees a window or one that sees all: from `layer_types`, or
    from `default` if that is missing. Raises ExportError for other kinds of layers."""
    kinds: Any = options.get("layer_types") or list(default)
    known = isinstance(kinds, list) and all(kind in (FULL, SLIDING) for kind in kinds)
    if not known or len(kinds) != count:
        raise ExportError(
            f"{options.path}: layer_types must be {FULL!r} or {SLIDING!r} for each of the {count} "
            f"layers, got {kinds!r}"
        )
    return list(kinds)


def sometimes_sliding(options: Options, count: int) -> dict[str, Any]:
    """The windows of Qwen: in the layers from `max_window_layers` on if `use_sliding_window` is
    set, or as `layer_types` says."""
    used, width = options.flag("use_sliding_window", False), read_window(options, 4096)
    first = options.integer("max_window_layers", 28)
    sliding = used and width is not None
    default = [SLIDING if sliding and layer >= first else FULL for layer in range(count)]
    kinds = layer_kinds(options, count, default)
    return windows_of(kinds, width if used else None)


def head_width(sizes: dict[str, Any]) -> int:
    """Features of one head of attention of these sizes."""
    width: int = sizes.get("head_dim") or sizes["model_dim"] // max(sizes["num_heads"], 1)
    return width


def read_decoder(
    folder: Path,
    options: Options,
    sizes: dict[str, Any],
    names: Names,
    kind: str,
    longest: int,
    harmless: Sequence[str] = (),
    weights_of: Callable[[Path], Weights] = read_weights,
) -> ImportedLanguageModel:
    """The model of a folder whose options have been read into `sizes`. Raises ExportError for an
    option that has not been read and is not `harmless`, and for errors in its files."""
    special_ids, other_ends = special_ids_of(
        options, generation_options(folder), sizes["vocab_size"]
    )
    longest, factor = stretched(options, longest)
    options.must_be(False, "is_encoder_decoder")
    options.finish({*HARMLESS, *harmless})
    weights = weights_of(folder)
    for number in range(sizes["num_decoder_layers"]):  # computed here
        for place in _COMPUTED:
            weights.drop(place.format(number))
    state: State = decoder_state(weights, options.path, sizes, names)
    read = ImportedLanguageModel(
        f"{kind} of Hugging Face transformers",
        loaded(options.path, sizes, state),
        read_tokenizer(folder),
        special_ids,
        longest,
        read_chat_template(folder),
        other_ends=other_ends,
    )
    scale_turned(read, factor)
    return read


_COMPUTED = (
    "model.layers.{}.self_attn.rotary_emb.inv_freq",
    "gpt_neox.layers.{}.attention.rotary_emb.inv_freq",
    "gpt_neox.layers.{}.attention.bias",
    "gpt_neox.layers.{}.attention.masked_bias",
)
"""Tensors of older files that are not weights: frequencies and masks, which are computed here."""
