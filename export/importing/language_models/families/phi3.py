"""Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024, "Phi-3 Technical Report"), from Hugging Face
`transformers`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import (
    read_decoder,
    read_sizes,
    read_window,
    window_of,
)
from export.importing.language_models.rotary import (
    check_rotary,
    rotary_number,
    rotary_options,
    scale_turned,
    turned_features,
)
from export.importing.language_models.state import Names
from export.importing.model import read_options

NAMES = Names(
    embedding="model.embed_tokens",
    output="lm_head",
    norm="model.norm",
    attention_norm="model.layers.{}.input_layernorm",
    ffn_norm="model.layers.{}.post_attention_layernorm",
    query_key_value=("model.layers.{}.self_attn.qkv_proj",),
    attention_output="model.layers.{}.self_attn.o_proj",
    up=("model.layers.{}.mlp.gate_up_proj",),
    down="model.layers.{}.mlp.down_proj",
)
_LONG = ("longrope", "su")
_TRAINED = 4096
"""Default number of positions of the first training."""
_OLD = "yarn"
"""The name of `longrope` in early files; `transformers` reads it as `longrope` too."""


def read_phi3(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Phi-3 or a Phi-4; raises ExportError, with file and entry, if something is
    not supported. Code beside it, which `auto_map` names, is not run, because the family is known
    here."""
    options = read_options(folder)
    sizes = read_sizes(options, eps=1e-5)
    options.must("hidden_act", "silu", default="silu")
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        options.must(name, False, default=False)
    for name in ("full_attn_mod", "interpolate_factor"):
        options.must(name, 1, default=1)
    longest = options.integer("max_position_embeddings")
    rotary, readable, factor = _read_rotary(options, sizes, longest)
    sizes |= {**rotary, "attention_bias": False, "ffn_bias": False}
    sizes |= window_of(read_window(options, None), readable)
    read = read_decoder(folder, options, sizes, NAMES, "Phi-3", readable, ("auto_map",))
    scale_turned(read, factor)
    return read


def _read_rotary(
    options: Options, sizes: dict[str, Any], longest: int
) -> tuple[dict[str, Any], int, float]:
    """The sizes of rotary positions, the number of tokens that may be read with them, and the
    factor of turned queries and keys.

    Long models use other factors for texts longer than those of their first training. Positions
    before the end of such a text would be turned differently than in a shorter text, so caches
    would have to be computed again. So they read only as much as the short factors are for.
    """
    name, rope = rotary_options(options)
    partial = options.number("partial_rotary_factor", 1.0)
    trained = options.integer("original_max_position_embeddings", _TRAINED, least=2)
    listed = ("short_factor", "long_factor", "factor", "attention_factor")
    check_rotary(options.path, name, rope, *listed)

    def number(key: str, default: float) -> float:
        return rotary_number(options.path, name, rope, key, default)

    partial = number("partial_rotary_factor", partial)
    width = sizes["model_dim"] // max(sizes["num_heads"], 1)
    dim = int(width * partial)
    found: dict[str, Any] = {"rotary_base": number("rope_theta", 10000.0)}
    found["rotary_dim"] = turned_features(options.path, dim, width)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return found, longest, 1.0
    factors = rope.get("short_factor")
    if kind not in (*_LONG, _OLD) or not isinstance(factors, list):
        raise ExportError(
            f"{options.path}: {name} of the type {kind!r} is not supported for Phi-3; it must be "
            "'default', or 'longrope' ('su') with a list short_factor"
        )
    if len(factors) != dim // 2 or not all(isinstance(each, int | float) for each in factors):
        raise ExportError(
            f"{options.path}: {name}: short_factor must be {dim // 2} numbers, got {factors!r}"
        )
    found |= {"rotary_scaling": "listed", "rotary_factors": tuple(map(float, factors))}
    longer = number("factor", longest / trained)
    scaled = 1.0 if longer <= 1.0 else math.sqrt(1.0 + math.log(longer) / math.log(trained))
    return found, min(trained, longest), number("attention_factor", scaled)
