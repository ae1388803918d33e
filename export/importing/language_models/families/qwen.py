"""Qwen2, Qwen2.5 and Qwen3 (Yang et al. 2024, "Qwen2 Technical Report"; Yang et al. 2025, "Qwen3
Technical Report"), from Hugging Face `transformers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from export.importing.language_models.families.llama import NAMES
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import (
    head_width,
    read_decoder,
    read_sizes,
    sometimes_sliding,
)
from export.importing.language_models.rotary import read_rotary
from export.importing.model import read_options

NORMED_NAMES = replace(
    NAMES,
    query_norm="model.layers.{}.self_attn.q_norm",
    key_norm="model.layers.{}.self_attn.k_norm",
)
"""The names in models that also norm queries and keys."""


def read_qwen2(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Qwen2, a Llama with biases of queries, keys and values; raises
    ExportError, with file and entry, if something is not supported."""
    options = read_options(folder)
    sizes = read_sizes(options, kv_heads=32)
    options.must("hidden_act", "silu", default="silu")
    longest = options.integer("max_position_embeddings")
    sizes |= read_rotary(options, head_width(sizes))
    sizes |= sometimes_sliding(options, sizes["num_decoder_layers"])
    sizes |= {"attention_output_bias": False, "ffn_bias": False}
    return read_decoder(folder, options, sizes, NAMES, "Qwen2", longest)


def read_qwen3(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a Qwen3, with norms of the queries and keys of each head; raises
    ExportError, with file and entry, if something is not supported."""
    options = read_options(folder)
    sizes = read_sizes(options, kv_heads=32)
    options.must("hidden_act", "silu", default="silu")
    longest = options.integer("max_position_embeddings")
    sizes["head_dim"] = options.integer("head_dim", 128)
    sizes |= read_rotary(options, head_width(sizes))
    sizes |= sometimes_sliding(options, sizes["num_decoder_layers"])
    sizes |= {
        "query_key_norm": "head",
        "attention_bias": options.flag("attention_bias", False),
        "ffn_bias": False,
    }
    return read_decoder(folder, options, sizes, NORMED_NAMES, "Qwen3", longest)
