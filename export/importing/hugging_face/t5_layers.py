"""Layers of T5, by the names of `transformers`, to those of `training.models`.

Shape letters: D model, P heads together, F feed-forward, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from export.errors import ExportError
from export.importing.folder import Options, Weights
from export.importing.layers import State
from training.errors import ConfigError
from training.models import TransformerConfig

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gated-relu": "reglu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}
"""Names of `transformers` to ours."""
_DEFAULTS = {"t5": "relu", "mt5": "gated-gelu"}
"""The default activation by the kind of model."""
_FARTHEST = 2**16
"""Largest distance with a bucket of its own, of which a table is made."""
_OUTPUT = "lm_head.weight"
_EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""The names of one matrix [V,D]."""


def read_config(options: Options, weights: Weights) -> tuple[TransformerConfig, bool]:
    """The configuration, and whether states are scaled before the output matrix; raises
    ExportError."""
    kind = options.must("model_type", *_DEFAULTS, default="t5")
    options.must("is_encoder_decoder", True, default=True)
    for name in ("is_decoder", "tie_encoder_decoder"):
        options.must(name, False, default=False)
    found = options.must("feed_forward_proj", *_ACTIVATIONS, default=_DEFAULTS[kind])
    is_tied = options.flag("tie_word_embeddings", True)
    scales = options.flag("scale_decoder_outputs", is_tied) if kind == "t5" else False
    layers = options.integer("num_layers")
    sizes: dict[str, Any] = {
        "model_dim": options.integer("d_model"),
        "num_heads": options.integer("num_heads"),
        "head_dim": options.integer("d_kv"),
        "ffn_dim": options.integer("d_ff"),
        "num_encoder_layers": layers,
        "num_decoder_layers": options.integer("num_decoder_layers", layers),
        "vocab_size": options.integer("vocab_size"),
        "num_buckets": options.integer("relative_attention_num_buckets", 32),
        "max_distance": options.integer("relative_attention_max_distance", 128, most=_FARTHEST),
    }
    try:
        config = TransformerConfig(
            **sizes,
            activation=_ACTIVATIONS[found],
            positions="relative_bias",
            norm="pre",
            norm_type="rms",
            norm_eps=options.number("layer_norm_epsilon", 1e-6),
            embedding_scale="none",
            attention_bias=False,
            ffn_bias=False,
            tie_embeddings=_is_tied(weights),
        )
    except ConfigError as error:
        raise ExportError(f"{options.path}: {error}") from error
    return config, scales


def t5_state(weights: Weights, config: TransformerConfig, *, scales_output: bool) -> State:
    """The state of a `Transformer`, taken from the weights.

    T5 does not scale scores; our queries make up for that. If it scales states before the output
    matrix, the norm before the matrix does it here.
    """
    dim = config.model_dim
    names = [*_EMBEDDINGS, *([_OUTPUT] if config.tie_embeddings else [])]
    state = {"embedding.weight": weights.take_one(names, config.vocab_size, dim)}
    if not config.tie_embeddings:
        state["output_matrix"] = weights.take(_OUTPUT, config.vocab_size, dim)
    for side in ("encoder", "decoder"):
        for number in range(getattr(config, f"num_{side}_layers")):
            there, here = f"{side}.block.{number}.layer", f"{side}.{number}"
            state |= _layer(weights, there, here, config, source=side == "decoder")
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table = weights.take(name, config.num_buckets, config.num_heads)
        state[f"{side}_bias.weight_1RH"] = table[None].clone()
        gain = weights.take(f"{side}.final_layer_norm.weight", dim)
        scales = scales_output and side == "decoder"
        state[f"{side}_norm.weight"] = gain * dim**-0.5 if scales else gain
    # Older files have one that nothing reads.
    weights.drop("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")
    weights.finish()
    return state


def _is_tied(weights: Weights) -> bool:
    """Whether the output matrix is the embedding. The tensors in the files decide: the options say
    only whether states are scaled."""
    return _OUTPUT not in weights or weights.same(_OUTPUT, _EMBEDDINGS[0])


def _layer(
    weights: Weights, there: str, here: str, config: TransformerConfig, *, source: bool
) -> State:
    dim, ffn_dim, width = config.model_dim, config.ffn_dim, config.attention_width
    root = math.sqrt(config.head_width)

    def attention(name: str) -> list[torch.Tensor]:
        query, key, value = (weights.take(f"{name}.{part}.weight", width, dim) for part in "qkv")
        return [query * root, key, value]

    state = {
        f"{here}.self_attention.in_proj.weight": torch.cat(attention(f"{there}.0.SelfAttention")),
        f"{here}.self_attention.out_proj.weight": weights.take(
            f"{there}.0.SelfAttention.o.weight", dim, width
        ),
    }
    norms = ["self_attention", "ffn"]
    if source:
        norms.insert(1, "source_attention")
        query, *key_value = attention(f"{there}.1.EncDecAttention")
        state[f"{here}.source_attention.query_proj.weight"] = query
        state[f"{here}.source_attention.key_value_proj.weight"] = torch.cat(key_value)
        state[f"{here}.source_attention.out_proj.weight"] = weights.take(
            f"{there}.1.EncDecAttention.o.weight", dim, width
        )
    ffn = f"{there}.{len(norms) - 1}.DenseReluDense"
    wide = ("wi_0", "wi_1") if config.activation in ("reglu", "geglu_tanh", "swiglu") else ("wi",)
    state[f"{here}.ffn.up_proj.weight"] = torch.cat(
        [weights.take(f"{ffn}.{name}.weight", ffn_dim, dim) for name in wide]
    )
    state[f"{here}.ffn.down_proj.weight"] = weights.take(f"{ffn}.wo.weight", dim, ffn_dim)
    for place, name in enumerate(norms):
        gain = weights.take(f"{there}.{place}.layer_norm.weight", dim)
        state[f"{here}.{name}_residual.norm.weight"] = gain
    return state
