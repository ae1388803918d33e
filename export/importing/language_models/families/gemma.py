"""Gemma 2 and the text part of Gemma 3, from Hugging Face `transformers` (Gemma Team 2024,
"Gemma 2"; 2025, "Gemma 3 Technical Report")."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import Options, Weights, number_of, read_weights
from export.importing.language_models.families.llama import NAMES
from export.importing.language_models.model import HARMLESS, ImportedLanguageModel
from export.importing.language_models.options import (
    FULL,
    SLIDING,
    head_width,
    layer_kinds,
    read_decoder,
    read_sizes,
    read_window,
    windows_of,
)
from export.importing.language_models.rotary import read_rotary, rotary_options, rotary_sizes
from export.importing.language_models.state import Names, one_more
from export.importing.model import read_cap, read_options

_LAYER = "model.layers.{}"
GEMMA2_NAMES = replace(
    NAMES,
    attention_output_norm=f"{_LAYER}.post_attention_layernorm",
    ffn_norm=f"{_LAYER}.pre_feedforward_layernorm",
    ffn_output_norm=f"{_LAYER}.post_feedforward_layernorm",
    gain=one_more,
)
GEMMA3_NAMES = replace(
    GEMMA2_NAMES,
    query_norm=f"{_LAYER}.self_attn.q_norm",
    key_norm=f"{_LAYER}.self_attn.k_norm",
)
SIZES: dict[str, Any] = {
    "activation": "geglu_tanh",
    "norm": "sandwich",
    "embedding_scale": "token",
    "ffn_bias": False,
}
"""Settings that Gemma 2 and Gemma 3 have in common."""
_HARMLESS = ("cache_implementation",)
_OF_PICTURES = frozenset(
    {
        "boi_token_id",
        "boi_token_index",
        "eoi_token_id",
        "eoi_token_index",
        "image_token_id",
        "image_token_index",
        "mm_tokens_per_image",
        "vision_config",
    }
)
"""Options that say how pictures are read."""
_PICTURES = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\.")
"""The beginning of the names of tensors that read pictures, in newer and in older files."""
_TEXTS = re.compile(r"^(model\.language_model|language_model\.model)\.")
_IDS = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
"""Default special ids; a file may give others beside its `text_config`, or in it."""
_LEFT_OUT = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "max_position_embeddings": 131_072,
}
"""Sizes that `transformers` leaves out of a `text_config` because they are its defaults."""
GLOBAL_BASE, LOCAL_BASE = 1_000_000.0, 10_000.0
"""Bases of rotary positions in Gemma 3, in layers that see all positions and in layers that see a
window."""


def read_gemma2(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Gemma 2; raises ExportError, with file and entry, if something is not
    supported."""
    options = read_options(folder)
    sizes, longest = _read_sizes(options)
    alternating = [FULL if number % 2 else SLIDING for number in range(sizes["num_decoder_layers"])]
    kinds = layer_kinds(options, len(alternating), alternating)
    sizes |= read_rotary(options, head_width(sizes))
    sizes |= windows_of(kinds, read_window(options, 4096))
    sizes |= _caps(options, attention=50.0, logits=30.0)
    return _read(folder, options, sizes, GEMMA2_NAMES, "Gemma 2", longest)


def read_gemma3(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Gemma 3 that reads only texts; raises ExportError, with file and entry, if
    something is not supported."""
    return _read_gemma3(folder, read_options(folder), "Gemma 3")


def read_gemma3_with_pictures(folder: Path) -> ImportedLanguageModel:
    """Read the text part of a folder of a Gemma 3 that also sees pictures; the parts that read
    pictures are left out. Raises ExportError, with file and entry, if something is not
    supported."""
    whole = read_options(folder)
    whole.must_be(True, "tie_word_embeddings")
    whole.must_be(False, "is_encoder_decoder")
    text = Options(whole.path, whole.need("text_config", dict))
    text.must_be("gemma3_text", "model_type")
    ids = {name: whole.get(name, text.get(name, value)) for name, value in _IDS.items()}
    whole.finish(HARMLESS | _OF_PICTURES)
    options = Options(whole.path, _LEFT_OUT | whole.need("text_config", dict) | ids)
    kind = "Gemma 3 (its text part; pictures are not read)"
    return _read_gemma3(folder, options, kind, _without_pictures)


def _without_pictures(folder: Path) -> Weights:
    """The weights of the text part, under the names that they have in a model for texts only."""

    def name(old: str) -> str | None:
        if _PICTURES.match(old):
            return None
        return _TEXTS.sub("model.", old).removeprefix("language_model.")

    return read_weights(folder).renamed(name)


def _read_gemma3(
    folder: Path,
    options: Options,
    kind: str,
    weights_of: Callable[[Path], Weights] = read_weights,
) -> ImportedLanguageModel:
    sizes, longest = _read_sizes(options)
    count = sizes["num_decoder_layers"]
    each = options.integer("sliding_window_pattern", 6, least=1)
    mostly = [SLIDING if (number + 1) % each else FULL for number in range(count)]
    kinds = layer_kinds(options, count, mostly)
    width = read_window(options, 4096)
    if width is None:
        raise ExportError(f"{options.path}: sliding_window must be an integer >= 1, got None")
    sizes |= windows_of(kinds, width) | {"query_key_norm": "head"}
    sizes |= both_rotary(options, kinds)
    sizes |= _caps(options, attention=0.0, logits=0.0)
    return _read(folder, options, sizes, GEMMA3_NAMES, kind, longest, weights_of)


def _read_sizes(options: Options) -> tuple[dict[str, Any], int]:
    sizes = read_sizes(options, tied=True, kv_heads=4) | SIZES
    activation = "gelu_pytorch_tanh"
    options.must("hidden_activation", activation, default=activation)
    options.get("hidden_act")  # which `transformers` does not read here
    options.must("use_bidirectional_attention", False, default=False)
    sizes["head_dim"] = options.integer("head_dim", 256)
    sizes["attention_bias"] = options.flag("attention_bias", False)
    return sizes, options.integer("max_position_embeddings")


def _caps(options: Options, *, attention: float, logits: float) -> dict[str, Any]:
    """The soft caps; null stands for no cap. The given ones are the family's defaults."""
    return {
        "attention_soft_cap": read_cap(options, "attn_logit_softcapping", attention),
        "logit_soft_cap": read_cap(options, "final_logit_softcapping", logits),
    }


def both_rotary(options: Options, kinds: list[str]) -> dict[str, Any]:
    """Rotary positions of layers that see all positions, which may be scaled, and of layers with a
    window, which may not: given by kind of layer, or in the form of older files."""
    local = options.number("rope_local_base_freq", LOCAL_BASE)
    name, rope = rotary_options(options)
    if rope.keys() & {FULL, SLIDING}:
        whole, windowed = (rope.get(kind) or {} for kind in (FULL, SLIDING))
    else:
        whole, windowed = rope, {}
    for kind, given in ((FULL, whole), (SLIDING, windowed)):
        if not isinstance(given, dict):
            raise ExportError(
                f"{options.path}: {name} of {kind} must be a JSON object, got {given!r}"
            )
    everywhere = number_of(f"{options.path}: rope_theta", rope.get("rope_theta", GLOBAL_BASE))
    found = rotary_sizes(options.path, f"{name} of {FULL}", whole, everywhere)
    kind = windowed.get("rope_type", "default")
    if kind != "default":
        raise ExportError(
            f"{options.path}: {name} of {SLIDING} of the type {kind!r} is not supported; it must "
            "be 'default'"
        )
    base = rotary_sizes(options.path, f"{name} of {SLIDING}", windowed, local)["rotary_base"]
    return found | ({"window_rotary_base": base} if SLIDING in kinds else {})


def _read(
    folder: Path,
    options: Options,
    sizes: dict[str, Any],
    names: Names,
    kind: str,
    longest: int,
    weights_of: Callable[[Path], Weights] = read_weights,
) -> ImportedLanguageModel:
    """Read a decoder whose scores are divided by the root of the option `query_pre_attn_scalar`,
    not of a head's width. Queries are multiplied to make up for the difference."""
    scalar = options.number("query_pre_attn_scalar", 256.0, above=0.0)
    read = read_decoder(folder, options, sizes, names, kind, longest, _HARMLESS, weights_of)
    scale_queries(read, math.sqrt(read.model.config.head_width / scalar))
    return read


def scale_queries(read: ImportedLanguageModel, factor: float) -> None:
    """Multiply queries by a factor: in the gains of their norm if they are normalised."""
    if factor == 1.0:
        return
    config, state = read.model.config, read.model.state_dict()
    for number in range(config.num_decoder_layers):
        place = f"layers.{number}.self_attention"
        if config.query_key_norm != "none":
            state[f"{place}.query_key_norm.query.weight"] *= factor
            continue
        rows = config.num_heads * config.head_width
        for kind in ("weight", "bias") if config.attention_bias else ("weight",):
            state[f"{place}.in_proj.{kind}"][:rows] *= factor
