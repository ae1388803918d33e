"""GPT-2 of Hugging Face `transformers` (Radford et al. 2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from export.importing.folder import Options, Weights, read_weights
from export.importing.language_models.model import (
    HARMLESS,
    ImportedLanguageModel,
    loaded,
    read_chat_template,
    read_tokenizer,
    special_ids_of,
)
from export.importing.model import generation_options, read_options

ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
ACTIVATIONS |= {"relu": "relu", "silu": "silu", "swish": "silu"}
"""Names of `transformers` to ours."""


def read_gpt2(folder: Path) -> ImportedLanguageModel:
    """Read a folder of GPT-2; raises ExportError, with file and entry, if something is not
    supported."""
    options, generation = read_options(folder), generation_options(folder)
    sizes = _read_sizes(options)
    special_ids, other_ends = special_ids_of(options, generation, sizes["vocab_size"])
    options.finish(HARMLESS)
    weights = read_weights(folder)
    model = loaded(options.path, sizes, _read_state(weights, sizes))
    return ImportedLanguageModel(
        "GPT-2 of Hugging Face transformers",
        model,
        read_tokenizer(folder),
        special_ids,
        sizes["max_positions"],
        read_chat_template(folder),
        other_ends=other_ends,
    )


def _read_sizes(options: Options) -> dict[str, Any]:
    options.must("scale_attn_weights", True, default=True)
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        options.must(name, False, default=False)
    options.get("n_ctx")  # as n_positions, in older files
    dim = options.integer("n_embd")
    activation = options.must("activation_function", *ACTIVATIONS, default="gelu_new")
    return {
        "model_dim": dim,
        "num_heads": options.integer("n_head"),
        "num_decoder_layers": options.integer("n_layer"),
        "ffn_dim": options.integer("n_inner", 0) or 4 * dim,
        "activation": ACTIVATIONS[activation],
        "vocab_size": options.integer("vocab_size"),
        "norm_eps": options.number("layer_norm_epsilon", 1e-5),
        "embedding_scale": "none",
        "positions": "learnt",
        "max_positions": options.integer("n_positions"),
        "tie_embeddings": options.flag("tie_word_embeddings", True),
    }


def _read_state(weights: Weights, sizes: dict[str, Any]) -> dict[str, Tensor]:
    """Products are stored as [inputs, outputs]."""
    dim, ffn_dim, size = sizes["model_dim"], sizes["ffn_dim"], sizes["vocab_size"]
    prefix = "transformer." if "transformer.wte.weight" in weights else ""
    state = {"positions.weight": weights.take(f"{prefix}wpe.weight", sizes["max_positions"], dim)}
    embedding = f"{prefix}wte.weight"
    if sizes["tie_embeddings"]:
        state["embedding.weight"] = weights.take_one((embedding, "lm_head.weight"), size, dim)
    else:
        state["embedding.weight"] = weights.take(embedding, size, dim)
        state["output_matrix"] = weights.take("lm_head.weight", size, dim)

    def norm(there: str, here: str) -> None:
        for kind in ("weight", "bias"):
            state[f"{here}.{kind}"] = weights.take(f"{prefix}{there}.{kind}", dim)

    for number in range(sizes["num_decoder_layers"]):
        there, here = f"h.{number}", f"layers.{number}"
        for name in ("bias", "masked_bias"):  # of the causal mask, in older files
            weights.drop(f"{prefix}{there}.attn.{name}")
        norm(f"{there}.ln_1", f"{here}.self_attention_residual.norm")
        norm(f"{there}.ln_2", f"{here}.ffn_residual.norm")
        for theirs, ours, inputs, outputs in (
            ("attn.c_attn", "self_attention.in_proj", dim, 3 * dim),
            ("attn.c_proj", "self_attention.out_proj", dim, dim),
            ("mlp.c_fc", "ffn.up_proj", dim, ffn_dim),
            ("mlp.c_proj", "ffn.down_proj", ffn_dim, dim),
        ):
            product = weights.take(f"{prefix}{there}.{theirs}.weight", inputs, outputs)
            state[f"{here}.{ours}.weight"] = product.T.contiguous()
            state[f"{here}.{ours}.bias"] = weights.take(f"{prefix}{there}.{theirs}.bias", outputs)
    norm("ln_f", "norm")
    weights.finish()
    return state
