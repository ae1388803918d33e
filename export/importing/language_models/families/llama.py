"""Llama and models of the same architecture (Touvron et al. 2023; Jiang et al. 2023, "Mistral 7B"),
from Hugging Face `transformers`."""

from __future__ import annotations

from pathlib import Path

from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import (
    FULL,
    head_width,
    read_decoder,
    read_sizes,
    read_window,
    window_of,
)
from export.importing.language_models.rotary import read_rotary
from export.importing.language_models.state import Names
from export.importing.model import read_options

NAMES = Names(
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
    up=("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    down="model.layers.{}.mlp.down_proj",
)
"""The names of tensors in a Llama, which most other families share."""


def read_llama(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Llama or a Mistral; raises ExportError, with file and entry, if something
    is not supported."""
    options = read_options(folder)
    sizes = read_sizes(options)
    dim, heads = sizes["model_dim"], sizes["num_heads"]
    options.must("hidden_act", "silu", default="silu")
    options.must("pretraining_tp", 1, default=1)
    options.must("rope_interleaved", False, default=False)
    if heads:
        options.must("head_dim", dim // heads, default=dim // heads)
    if options.get("layer_types"):
        options.must("layer_types", [FULL] * sizes["num_decoder_layers"])
    sizes |= read_rotary(options, head_width(sizes))
    sizes["attention_bias"] = options.flag("attention_bias", False)
    sizes["ffn_bias"] = options.flag("mlp_bias", False)
    longest = options.integer("max_position_embeddings")
    sizes |= window_of(read_window(options, None), longest)
    name = {"mistral": "Mistral"}.get(str(options.get("model_type")), "Llama")
    return read_decoder(folder, options, sizes, NAMES, name, longest)
