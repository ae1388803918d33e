"""GPT-NeoX and Pythia (Black et al. 2022, "GPT-NeoX-20B"; Biderman et al. 2023, "Pythia"), from
Hugging Face `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from export.importing.folder import Options
from export.importing.language_models.families.gpt2 import ACTIVATIONS
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import (
    read_decoder,
)
from export.importing.language_models.rotary import (
    rotary_number,
    rotary_options,
    rotary_sizes,
    turned_features,
)
from export.importing.language_models.state import Names
from export.importing.model import read_options


def _by_part(rows: Tensor, heads: int) -> Tensor:
    """Reorder rows, which hold the query, the key and the value of each head in turn, so that all
    queries come first, then all keys and all values."""
    by_head = rows.reshape(heads, 3, len(rows) // (3 * heads), *rows.shape[1:])
    return by_head.transpose(0, 1).reshape(rows.shape)


NAMES = Names(
    embedding="gpt_neox.embed_in",
    output="embed_out",
    norm="gpt_neox.final_layer_norm",
    attention_norm="gpt_neox.layers.{}.input_layernorm",
    ffn_norm="gpt_neox.layers.{}.post_attention_layernorm",
    query_key_value=("gpt_neox.layers.{}.attention.query_key_value",),
    attention_output="gpt_neox.layers.{}.attention.dense",
    up=("gpt_neox.layers.{}.mlp.dense_h_to_4h",),
    down="gpt_neox.layers.{}.mlp.dense_4h_to_h",
    heads=_by_part,
)
_HARMLESS = ("hidden_dropout", "classifier_dropout", "is_decoder")


def read_gpt_neox(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a GPT-NeoX or a Pythia; raises ExportError, with file and entry, if
    something is not supported."""
    options = read_options(folder)
    dim, heads = options.integer("hidden_size"), options.integer("num_attention_heads")
    activation = options.must("hidden_act", *ACTIVATIONS, default="gelu")
    parallel = options.flag("use_parallel_residual", True)
    sizes = {
        "model_dim": dim,
        "num_heads": heads,
        "num_decoder_layers": options.integer("num_hidden_layers"),
        "ffn_dim": options.integer("intermediate_size"),
        "activation": ACTIVATIONS[activation],
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.number("layer_norm_eps", 1e-5),
        "embedding_scale": "none",
        "positions": "rotary",
        "block": "parallel" if parallel else "standard",
        "attention_bias": options.flag("attention_bias", True),
        "tie_embeddings": options.flag("tie_word_embeddings", False),
        **_read_rotary(options, dim // max(heads, 1)),
    }
    longest = options.integer("max_position_embeddings")
    return read_decoder(folder, options, sizes, NAMES, "GPT-NeoX", longest, _HARMLESS)


def _read_rotary(options: Options, width: int) -> dict[str, Any]:
    """Rotary positions. Older files give the base and the share of a head under other names."""
    base, share = options.number("rotary_emb_base", 10000.0), options.number("rotary_pct", 0.25)
    share = options.number("partial_rotary_factor", share)
    name, rope = rotary_options(options)
    dim = int(width * rotary_number(options.path, name, rope, "partial_rotary_factor", share))
    rest = {key: value for key, value in rope.items() if key != "partial_rotary_factor"}
    found = rotary_sizes(options.path, name, rest, base)
    return found | {"rotary_dim": turned_features(options.path, dim, width)}
