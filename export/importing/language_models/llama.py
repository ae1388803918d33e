"""Llama and what is built as it is (Touvron et al. 2023; Jiang et al. 2023, "Mistral 7B"), from
Hugging Face `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights, read_weights
from export.importing.language_models.model import (
    HARMLESS,
    ImportedLanguageModel,
    loaded,
    model_config,
    read_chat_template,
    read_tokenizer,
    special_ids_of,
)
from export.importing.model import generation_options, read_options

_SCALING = "rope_scaling"


def read_llama(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Llama or a Mistral; raises ExportError, with file and entry, for what is
    not supported."""
    options, generation = read_options(folder), generation_options(folder)
    sizes = _read_sizes(options)
    special_ids, other_ends = special_ids_of(options, generation, sizes["vocab_size"])
    longest = options.integer("max_position_embeddings")
    sizes |= window_of(options.get("sliding_window"), longest)
    options.finish(HARMLESS)
    weights = read_weights(folder)
    for number in range(sizes["num_decoder_layers"]):  # computed here
        weights.drop(f"model.layers.{number}.self_attn.rotary_emb.inv_freq")
    model = loaded(options.path, sizes, llama_state(weights, options.path, sizes, _NAMES))
    name = {"mistral": "Mistral"}.get(str(options.get("model_type")), "Llama")
    return ImportedLanguageModel(
        f"{name} of Hugging Face transformers",
        model,
        read_tokenizer(folder),
        special_ids,
        longest,
        read_chat_template(folder),
        other_ends=other_ends,
    )


def window_of(width: int | None, longest: int) -> dict[str, Any]:
    """The sizes of a sliding window: each layer sees the last `width` positions, its own among
    them; nothing where that is as much as there may be."""
    if width is None or width >= longest:
        return {}
    return {"attention": "cascade", "first_window": width, "window_multiplier": 1}


def _read_sizes(options: Options) -> dict[str, Any]:
    dim, heads = options.integer("hidden_size"), options.integer("num_attention_heads")
    options.must("hidden_act", "silu", default="silu")
    options.must("pretraining_tp", 1, default=1)
    options.must("rope_interleaved", False, default=False)
    if heads:
        options.must("head_dim", dim // heads, default=dim // heads)
    if options.get("layer_types"):
        options.must("layer_types", ["full_attention"] * options.integer("num_hidden_layers"))
    return {
        **SIZES,
        "model_dim": dim,
        "num_heads": heads,
        "num_kv_heads": options.get("num_key_value_heads") or 0,
        "num_decoder_layers": options.integer("num_hidden_layers"),
        "ffn_dim": options.integer("intermediate_size"),
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.get("rms_norm_eps", 1e-6),
        **_read_rotary(options),
        "attention_bias": options.get("attention_bias", False),
        "ffn_bias": options.get("mlp_bias", False),
        "tie_embeddings": options.get("tie_word_embeddings", False),
    }


SIZES: dict[str, Any] = {
    "activation": "swiglu",
    "norm_type": "rms",
    "embedding_scale": "none",
    "positions": "rotary",
}
"""What all of them have in common."""


def _read_rotary(options: Options) -> dict[str, Any]:
    """The base of rotary positions, and how they are scaled; raises ExportError for a way that is
    not known."""
    told, name = options.get("rope_parameters"), "rope_parameters"
    if told is None:
        told, name = options.get(_SCALING) or {}, _SCALING
    options.get(_SCALING)
    kind = told.get("rope_type", told.get("type", "default"))
    if kind not in _SCALED_BY:
        raise ExportError(
            f"{options.path}: {name} of the type {kind!r} is not supported; it must be one of "
            f"{', '.join(map(repr, _SCALED_BY))}"
        )
    base = told.get("rope_theta", options.get("rope_theta", 10000.0))
    options.get("rope_theta")
    found: dict[str, Any] = {"rotary_base": float(base)}
    if kind == "default":
        return found
    missing = [key for key in _SCALED_BY[kind] if not isinstance(told.get(key), int | float)]
    if missing:
        raise ExportError(
            f"{options.path}: {name} of the type {kind!r} needs a number {missing[0]}"
        )
    found["rotary_scaling"] = kind
    return found | {ours: told[key] for key, ours in _SCALED_BY[kind].items()}


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


@dataclass(frozen=True)
class Names:
    """What a file calls the tensors of a Llama: those of a layer have its number in place of
    `{}`."""

    embedding: str
    output: str
    norm: str
    attention_norm: str
    ffn_norm: str
    query_key_value: tuple[str, str, str]
    attention_output: str
    gate_up: tuple[str, str]
    down: str
    heads: Callable[[Tensor, int], Tensor]
    """Rows of queries or keys, and their number of heads, to these in halves."""


def as_they_are(rows: Tensor, heads: int) -> Tensor:
    """Features that are turned together lie half a head apart, as here."""
    del heads
    return rows


_NAMES = Names(
    embedding="model.embed_tokens",
    output="lm_head",
    norm="model.norm",
    attention_norm="model.layers.{}.input_layernorm",
    ffn_norm="model.layers.{}.post_attention_layernorm",
    query_key_value=(
        "model.layers.{}.self_attn.q_proj",
        "model.layers.{}.self_attn.k_proj",
        "model.layers.{}.self_attn.v_proj",
    ),
    attention_output="model.layers.{}.self_attn.o_proj",
    gate_up=("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    down="model.layers.{}.mlp.down_proj",
    heads=as_they_are,
)


def llama_state(
    weights: Weights, path: Path, sizes: dict[str, Any], names: Names
) -> dict[str, Tensor]:
    """The state of a `CausalLanguageModel` of these sizes, which `path` tells."""
    config = model_config(path, sizes)
    dim, size = config.model_dim, config.vocab_size
    embedding, output = f"{names.embedding}.weight", f"{names.output}.weight"
    state: dict[str, Tensor] = {}
    if config.tie_embeddings:
        state["embedding.weight"] = weights.take_one((embedding, output), size, dim)
    else:
        state["embedding.weight"] = weights.take(embedding, size, dim)
        state["output_matrix"] = weights.take(output, size, dim)
    for number in range(config.num_decoder_layers):
        here = f"layers.{number}"
        for ours, theirs in (
            ("self_attention_residual", names.attention_norm),
            ("ffn_residual", names.ffn_norm),
        ):
            state[f"{here}.{ours}.norm.weight"] = weights.take(
                f"{theirs.format(number)}.weight", dim
            )
        layer = _Layer(weights, number, names, config.num_heads, config.kv_heads)
        for kind in ("weight", "bias") if config.attention_bias else ("weight",):
            state[f"{here}.self_attention.in_proj.{kind}"] = layer.query_key_value(kind, dim)
            state[f"{here}.self_attention.out_proj.{kind}"] = layer.take(
                names.attention_output, kind, dim, dim
            )
        for kind in ("weight", "bias") if config.ffn_bias else ("weight",):
            parts = [layer.take(name, kind, config.ffn_dim, dim) for name in names.gate_up]
            state[f"{here}.ffn.up_proj.{kind}"] = torch.cat(parts)
            state[f"{here}.ffn.down_proj.{kind}"] = layer.take(
                names.down, kind, dim, config.ffn_dim
            )
    state["norm.weight"] = weights.take(f"{names.norm}.weight", dim)
    weights.finish()
    return state


@dataclass(frozen=True)
class _Layer:
    weights: Weights
    number: int
    names: Names
    num_heads: int
    kv_heads: int

    def take(self, name: str, kind: str, outputs: int, inputs: int) -> Tensor:
        """The weight or bias of a product."""
        shape = (outputs, inputs) if kind == "weight" else (outputs,)
        return self.weights.take(f"{name.format(self.number)}.{kind}", *shape)

    def query_key_value(self, kind: str, dim: int) -> Tensor:
        """Those of queries, keys and values, row behind row."""
        width, found = dim // self.num_heads, []
        counts = (self.num_heads, self.kv_heads, self.kv_heads)
        for place, (name, heads) in enumerate(zip(self.names.query_key_value, counts, strict=True)):
            rows = self.take(name, kind, heads * width, dim)
            found.append(self.names.heads(rows, heads) if place < 2 else rows)
        return torch.cat(found)
