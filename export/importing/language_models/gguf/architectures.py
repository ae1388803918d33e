"""The architectures of GGUF files that can be read, with their headers and tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import MOST, Options, Weights
from export.importing.language_models.families.gemma import LOCAL_BASE, scale_queries
from export.importing.language_models.families.gemma import SIZES as GEMMA_SIZES
from export.importing.language_models.model import ImportedLanguageModel, model_config
from export.importing.language_models.options import (
    FULL,
    SIZES,
    SLIDING,
    WIDEST,
    window_of,
    windows_of,
)
from export.importing.language_models.rotary import (
    check_yarn,
    scale_turned,
    temperature,
    turned_features,
    yarn_sizes,
)
from export.importing.language_models.state import Names
from training.models.sublayers.positions import rotary_slowing

Sizes = dict[str, Any]


@dataclass(frozen=True)
class GgufHeader:
    """The options of a file of one architecture."""

    options: Options
    architecture: str
    weights: Weights

    def key(self, name: str) -> str:
        """The name of an option of the architecture's own."""
        return f"{self.architecture}.{name}"

    def get(self, name: str, default: Any = None) -> Any:
        """The option `name` of the architecture, or the default if the file does not have it."""
        return self.options.get(self.key(name), default)

    def integer(self, name: str, default: int | None = None, *, most: int = MOST) -> int:
        """The option `name` of the architecture, which must be an integer; as in `Options`."""
        return self.options.integer(self.key(name), default, most=most)

    def number(self, name: str, default: float | None = None) -> float:
        """The option `name` of the architecture, which must be a number; as in `Options`."""
        return self.options.number(self.key(name), default)

    def must(self, name: str, *supported: Any, default: Any = None) -> Any:
        """The option `name` of the architecture, which must have one of these values."""
        return self.options.must(self.key(name), *supported, default=default)


@dataclass(frozen=True)
class Architecture:
    """The settings with which the files of one architecture are read."""

    kind: str
    names: Names
    own_sizes: Callable[[GgufHeader, Sizes], Sizes]
    """Returns the sizes that only this architecture has. It may lower `max_positions` if the layers
    see less."""
    finish: Callable[[GgufHeader, ImportedLanguageModel], None] | None = None
    """Changes the model after it has been read."""


def read_sizes(
    header: GgufHeader, architecture: Architecture, vocab_size: int
) -> tuple[Sizes, int]:
    """The sizes of the model, and the number of tokens that it may read."""
    scaling = header.must("rope.scaling.type", "none", "linear", _YARN, default="none")
    header.get("rope.scaling.finetuned")  # changes nothing
    header.must("expert_count", 0, default=0)
    header.must("vocab_size", vocab_size, default=vocab_size)
    dim, heads = header.integer("embedding_length"), header.integer("attention.head_count")
    width = header.integer("attention.key_length", dim // heads if heads else 0)
    header.must("attention.value_length", width, default=width)
    sizes: Sizes = {
        **SIZES,
        "model_dim": dim,
        "num_heads": heads,
        "num_kv_heads": header.integer("attention.head_count_kv", 0),
        "head_dim": 0 if width * heads == dim else width,
        "num_decoder_layers": header.integer("block_count"),
        "ffn_dim": header.integer("feed_forward_length"),
        "vocab_size": vocab_size,
        "rotary_base": header.number("rope.freq_base", 10000.0),
        "rotary_scaling": "none" if scaling == _YARN else scaling,
        "rotary_factor": 1.0 if scaling == _YARN else header.number("rope.scaling.factor", 1.0),
        "attention_bias": False,
        "ffn_bias": False,
        "tie_embeddings": f"{architecture.names.output}.weight" not in header.weights,
        "max_positions": header.integer("context_length"),
    }
    sizes |= architecture.own_sizes(header, sizes)
    longest = sizes.pop("max_positions")
    if scaling != _YARN:
        return sizes, longest
    numbers = _yarn_numbers(header, sizes, longest)
    sizes |= yarn_sizes(numbers, sizes.get("rotary_dim") or _width(sizes), sizes["rotary_base"])
    return sizes, max(longest, int(numbers[_TRAINED] * numbers["factor"]))


def scale_by_yarn(header: GgufHeader, read: ImportedLanguageModel) -> None:
    """Multiply queries and keys as YaRN does, if it scales the positions."""
    if header.get("rope.scaling.type") == _YARN:
        factor = temperature(header.number("rope.scaling.factor"), 1.0)
        scale_turned(read, factor * header.number("rope.scaling.attn_factor", 1.0))


def _yarn_numbers(header: GgufHeader, sizes: Sizes, longest: int) -> dict[str, float]:
    """The numbers of YaRN in the form of llama.cpp; raises ExportError if something else scales
    positions too."""
    path, name = header.options.path, header.key("rope.scaling")
    if sizes["rotary_scaling"] != "none" or "window_rotary_base" in sizes:
        raise ExportError(
            f"{path}: {name}.type {_YARN!r} is not supported where tensors, or layers that see a "
            "window, have positions of their own; it must be 'none' or 'linear'"
        )
    for part, neutral in _NEUTRAL.items():
        header.must(f"rope.scaling.{part}", neutral, default=neutral)
    numbers = {
        "factor": header.number("rope.scaling.factor"),
        _TRAINED: header.integer("rope.scaling.original_context_length", longest),
        "beta_fast": header.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": header.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    check_yarn(path, name, numbers)
    return numbers


def _width(sizes: Sizes) -> int:
    return int(sizes["head_dim"] or sizes["model_dim"] // max(sizes["num_heads"], 1))


def _root_mean_square(header: GgufHeader) -> Sizes:
    return {"norm_eps": header.number("attention.layer_norm_rms_epsilon")}


def _llama(header: GgufHeader, sizes: Sizes) -> Sizes:
    header.must("rope.dimension_count", _width(sizes), default=_width(sizes))
    found = _root_mean_square(header)
    return found | (_slowing(header, sizes | found) if _SLOWER in header.weights else {})


def _plain_llama(header: GgufHeader, sizes: Sizes) -> Sizes:
    """The sizes of a Llama whose heads have no width of their own."""
    width = sizes["model_dim"] // max(sizes["num_heads"], 1)
    header.must("attention.key_length", width, default=width)
    return _llama(header, sizes)


def _slowing(header: GgufHeader, sizes: Sizes) -> Sizes:
    """The scaling of rotary positions, of which a file holds only the resulting factor of each
    angle. Raises ExportError unless they are scaled as in Llama 3.1 and its successors."""
    slower_F = header.weights.take(_SLOWER, _width(sizes) // 2)
    scaled = {"rotary_scaling": "llama3", "rotary_factor": float(slower_F.max())}
    given = {name: value for name, value in sizes.items() if name != "max_positions"}
    config = model_config(header.options.path, given | scaled)
    wanted_F = rotary_slowing(config)
    assert wanted_F is not None
    if not torch.allclose(slower_F, wanted_F, rtol=1e-3):
        raise ExportError(
            f"{header.options.path}: {_SLOWER} must scale positions as Llama 3.1 does, from "
            f"{config.rotary_low_factor:g} to {config.rotary_high_factor:g} turns in "
            f"{config.rotary_trained_length} positions"
        )
    return scaled


def _qwen2(header: GgufHeader, sizes: Sizes) -> Sizes:
    return {**_llama(header, sizes), "attention_bias": True, "attention_output_bias": False}


def _qwen3(header: GgufHeader, sizes: Sizes) -> Sizes:
    return {**_llama(header, sizes), "query_key_norm": "head"}


def _olmo2(header: GgufHeader, sizes: Sizes) -> Sizes:
    return {**_llama(header, sizes), "norm": "output", "query_key_norm": "width"}


def _smollm3(header: GgufHeader, sizes: Sizes) -> Sizes:
    """The sizes of a SmolLM3, of which each fourth layer has no positions; the header does not say
    so."""
    found, count = _llama(header, sizes), sizes["num_decoder_layers"]
    turned = tuple(int((number + 1) % 4 != 0) for number in range(count))
    return found | ({} if all(turned) else {"rotary_layers": turned})


def _phi3(header: GgufHeader, sizes: Sizes) -> Sizes:
    """Positions are scaled for texts of the first training's length; see
    `phi3.read_phi3`."""
    width, longest = _width(sizes), sizes["max_positions"]
    dim = header.integer("rope.dimension_count", width)
    found = _root_mean_square(header)
    found["rotary_dim"] = turned_features(header.options.path, dim, width)
    trained = header.integer("rope.scaling.original_context_length", longest)
    short = header.weights.drop(_SHORT)
    header.weights.drop(_LONG)
    header.get("rope.scaling.attn_factor")  # read by `_scale_phi3`
    if short is not None:
        factors = tuple(short.float().flatten().tolist())
        found |= {"rotary_scaling": "listed", "rotary_factors": factors}
        longest = min(trained, longest)
    window = header.integer("attention.sliding_window", 0, most=WIDEST)
    return found | window_of(window or None, longest) | {"max_positions": longest}


def _scale_phi3(header: GgufHeader, read: ImportedLanguageModel) -> None:
    factor = header.number("rope.scaling.attn_factor", 1.0)
    if factor != 1.0 and read.model.config.rotary_scaling == "listed":
        scale_turned(read, factor)


def _gemma(header: GgufHeader, sizes: Sizes, window: int, each: int) -> Sizes:
    """The sizes that both Gemmas have. Each `each`-th layer sees all positions, the others see a
    window."""
    count = sizes["num_decoder_layers"]
    header.must("rope.dimension_count", _width(sizes), default=_width(sizes))
    kinds = [SLIDING if (number + 1) % each else FULL for number in range(count)]
    return {**GEMMA_SIZES, **_root_mean_square(header), **windows_of(kinds, window)}


def _gemma2(header: GgufHeader, sizes: Sizes) -> Sizes:
    window = header.integer("attention.sliding_window", 4096, most=WIDEST)
    return _gemma(header, sizes, window, 2) | {
        "attention_soft_cap": header.number("attn_logit_softcapping", 50.0),
        "logit_soft_cap": header.number("final_logit_softcapping", 30.0),
    }


def _gemma3(header: GgufHeader, sizes: Sizes) -> Sizes:
    each = header.options.integer(header.key("attention.sliding_window_pattern"), 6, least=1)
    window = header.integer("attention.sliding_window", most=WIDEST)
    found = _gemma(header, sizes, window, each)
    base = header.number("rope.freq_base_swa", LOCAL_BASE)
    local = {"window_rotary_base": base} if "layer_windows" in found else {}
    cap = header.number("final_logit_softcapping", 0.0)
    return found | local | {"query_key_norm": "head", "logit_soft_cap": cap}


_LARGEST = {"gemma2": 46, "gemma3": 62}
"""Numbers of layers of the models whose scores are divided by the root of the model's width over
heads."""


def _scale_gemma(header: GgufHeader, read: ImportedLanguageModel) -> None:
    config = read.model.config
    if config.num_decoder_layers == _LARGEST[header.architecture]:
        scale_queries(read, math.sqrt(config.head_width * config.num_heads / config.model_dim))


def _gpt_neox(header: GgufHeader, sizes: Sizes) -> Sizes:
    width = _width(sizes)
    dim = header.integer("rope.dimension_count", width)
    parallel = header.get("use_parallel_residual", True)
    return {
        "norm_type": "layer",
        "norm_eps": header.number("attention.layer_norm_epsilon"),
        "activation": "gelu",
        "block": "parallel" if parallel else "standard",
        "rotary_dim": turned_features(header.options.path, dim, width),
        "attention_bias": True,
        "ffn_bias": True,
    }


def _halves(rows: Tensor, heads: int) -> Tensor:
    """Reorder features that are turned together: they are side by side in the file, and half a head
    apart here."""
    by_head = rows.reshape(heads, -1, 2, rows.shape[-1])
    return by_head.transpose(1, 2).reshape(rows.shape)


_YARN, _TRAINED = "yarn", "original_max_position_embeddings"
_NEUTRAL = {"yarn_ext_factor": 1.0, "yarn_attn_factor": 1.0, "yarn_log_multiplier": 0.0}
"""Numbers of YaRN that are not supported, with the values that change nothing."""
_SLOWER = "rope_freqs.weight"
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"
_NAMES = Names(
    embedding="token_embd",
    output="output",
    norm="output_norm",
    attention_norm="blk.{}.attn_norm",
    ffn_norm="blk.{}.ffn_norm",
    query_key_value=("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v"),
    attention_output="blk.{}.attn_output",
    up=("blk.{}.ffn_gate", "blk.{}.ffn_up"),
    down="blk.{}.ffn_down",
)
_HALVED = replace(_NAMES, heads=_halves)
_FUSED = replace(_NAMES, query_key_value=("blk.{}.attn_qkv",), up=("blk.{}.ffn_up",))
_NORMED = replace(_NAMES, query_norm="blk.{}.attn_q_norm", key_norm="blk.{}.attn_k_norm")


def _with_post_norms(names: Names) -> Names:
    return replace(
        names,
        attention_output_norm="blk.{}.post_attention_norm",
        ffn_output_norm="blk.{}.post_ffw_norm",
    )


ARCHITECTURES = {
    "llama": Architecture("Llama", _HALVED, _plain_llama),
    "qwen2": Architecture("Qwen2", _NAMES, _qwen2),
    "qwen3": Architecture("Qwen3", _NORMED, _qwen3),
    "phi3": Architecture("Phi-3", _FUSED, _phi3, _scale_phi3),
    "gemma2": Architecture("Gemma 2", _with_post_norms(_NAMES), _gemma2, _scale_gemma),
    "gemma3": Architecture("Gemma 3", _with_post_norms(_NORMED), _gemma3, _scale_gemma),
    "olmo2": Architecture(
        "OLMo 2", _with_post_norms(replace(_NORMED, attention_norm="", ffn_norm="")), _olmo2
    ),
    "gptneox": Architecture("GPT-NeoX", _FUSED, _gpt_neox),
    "smollm3": Architecture("SmolLM3", _HALVED, _smollm3),
}
"""The architectures by their names in a header. The gains of Gemma's norms are stored unchanged."""
