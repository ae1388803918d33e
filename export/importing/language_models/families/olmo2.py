"""OLMo 2 (OLMo Team 2024, "2 OLMo 2 Furious"), from Hugging Face `transformers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from export.importing.language_models.families.llama import NAMES as LLAMA_NAMES
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import head_width, read_decoder, read_sizes
from export.importing.language_models.rotary import read_rotary
from export.importing.model import read_options

NAMES = replace(
    LLAMA_NAMES,
    attention_norm="",
    ffn_norm="",
    attention_output_norm="model.layers.{}.post_attention_layernorm",
    ffn_output_norm="model.layers.{}.post_feedforward_layernorm",
    query_norm="model.layers.{}.self_attn.q_norm",
    key_norm="model.layers.{}.self_attn.k_norm",
)


def read_olmo2(folder: Path) -> ImportedLanguageModel:
    """Read a folder of an OLMo 2, which normalises the outputs of sublayers, and queries and keys
    over all heads; raises ExportError, with file and entry, if something is not supported."""
    options = read_options(folder)
    sizes = read_sizes(options, eps=1e-5)
    options.must("hidden_act", "silu", default="silu")
    sizes |= read_rotary(options, head_width(sizes))
    sizes |= {
        "norm": "output",
        "query_key_norm": "width",
        "attention_bias": options.flag("attention_bias", False),
        "ffn_bias": False,
    }
    longest = options.integer("max_position_embeddings")
    return read_decoder(folder, options, sizes, NAMES, "OLMo 2", longest)
