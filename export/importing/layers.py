"""Layers of the encoder-decoders of `transformers` that share BART's modules, converted by name to
those of `training.models`; also fairseq's convolutions.

Shape letters: D model, F feed-forward, V vocabulary, H heads, K kernel width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Weights
from training.models import TransformerConfig

EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
"""The names of one matrix [V,D], unless the configuration has several."""

State = dict[str, Tensor]


def transformer_state(weights: Weights, config: TransformerConfig) -> State:
    """The state of a `Transformer`, taken from the weights; positions, norms of embeddings and the
    output bias are the caller's."""
    dim = config.model_dim
    state = _embeddings(weights, config)
    sides = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    for side, count in sides.items():
        for number in range(count):
            there, here = f"model.{side}.layers.{number}", f"{side}.{number}"
            state |= _mixing(weights, there, here, config.of_layer(number), side)
            state |= _layer(weights, there, here, config, source=side == "decoder")
        if config.norm == "pre":
            state |= take_norm(weights, f"model.{side}.layer_norm", f"{side}_norm", dim)
    return state


def _embeddings(weights: Weights, config: TransformerConfig) -> State:
    """The vectors of the target, and those of source and output if they are separate."""
    shared, source, target, output = EMBEDDINGS
    names, state = [shared, source, target], {}
    if config.source_vocab_size:
        rows = weights.take(source, config.source_vocab_size, config.model_dim)
        names, state["source_embedding.weight"] = [target], rows
    if config.tie_embeddings:
        names.append(output)
    else:
        state["output_matrix"] = weights.take(output, config.vocab_size, config.model_dim)
    return state | {
        "embedding.weight": weights.take_one(names, config.vocab_size, config.model_dim)
    }


def drop_sinusoids(
    weights: Weights,
    name: str,
    sinusoid: Callable[[Tensor, int], Tensor],
    dim: int,
    *,
    before: int = 0,
) -> None:
    """Drop stored tables of positions, which are computed here; the first `before` rows belong to
    padding. Raises ExportError if they hold something else."""
    for side in ("encoder", "decoder"):
        table = weights.drop(f"model.{side}.{name}")
        if table is None:
            continue
        wanted = sinusoid(torch.arange(max(0, len(table) - before)), dim)
        found = table[before:].float()
        if found.shape != wanted.shape or not torch.allclose(found, wanted, atol=1e-3):
            raise ExportError(
                f"{weights.path}: 'model.{side}.{name}' does not hold the sinusoids of this "
                "family; learnt positions are not supported for it"
            )


def take_norm(weights: Weights, there: str, here: str, dim: int) -> State:
    """Gain and bias of one LayerNorm."""
    return {f"{here}.{kind}": weights.take(f"{there}.{kind}", dim) for kind in ("weight", "bias")}


def _mixing(weights: Weights, there: str, here: str, config: TransformerConfig, side: str) -> State:
    """The weights of the sublayer by which positions of a side exchange information; `config` is
    that of one layer."""
    dim, place = config.model_dim, f"{here}.self_attention"
    mixing = config.encoder_mixing if side == "encoder" else config.decoder_mixing
    if mixing == "attention":
        return _products(weights, f"{there}.self_attn", place, dim, _SELF)
    state: State = {}
    inner = 2 * dim if config.conv_glu else dim
    for theirs, ours, width in (("linear1", "in_proj", inner), ("linear2", "out_proj", dim)):
        state[f"{place}.{ours}.weight"] = weights.take(f"{there}.{theirs}.weight", width, dim)
        state[f"{place}.{ours}.bias"] = weights.take(f"{there}.{theirs}.bias", width)
    heads, (width,) = config.num_heads, config.kernel_sizes(side)
    # Their first tap meets the earliest position, ours the latest.
    if mixing == "light_conv":
        taps_HK = weights.take(f"{there}.conv.weight", heads, width)
        state[f"{place}.kernel"] = taps_HK.flip(1)
    else:
        rows = weights.take(f"{there}.conv.weight_linear.weight", heads * width, dim)
        taps_HKD = rows.reshape(heads, width, dim).flip(1)
        state[f"{place}.kernel_proj.weight"] = taps_HKD.reshape(heads * width, dim)
    return state


def _layer(
    weights: Weights, there: str, here: str, config: TransformerConfig, *, source: bool
) -> State:
    dim, ffn_dim = config.model_dim, config.ffn_dim
    state: State = {}
    norms = {"self_attn_layer_norm": "self_attention", "final_layer_norm": "ffn"}
    feed_forwards = {"": "ffn"}
    if config.block == "macaron":
        norms["macaron_layer_norm"] = "first_ffn"
        feed_forwards["macaron_"] = "first_ffn"
    if source:
        state |= _products(
            weights, f"{there}.encoder_attn", f"{here}.source_attention", dim, _SOURCE
        )
        norms["encoder_attn_layer_norm"] = "source_attention"
    products = (("fc1", "up_proj", (ffn_dim, dim)), ("fc2", "down_proj", (dim, ffn_dim)))
    for prefix, name in feed_forwards.items():
        for theirs, ours, shape in products:
            for kind, axes in (("weight", shape), ("bias", shape[:1])):
                taken = weights.take(f"{there}.{prefix}{theirs}.{kind}", *axes)
                state[f"{here}.{name}.{ours}.{kind}"] = taken
    for theirs, ours in norms.items():
        state |= take_norm(weights, f"{there}.{theirs}", f"{here}.{ours}_residual.norm", dim)
    return state


_SELF = {"in_proj": ("q_proj", "k_proj", "v_proj"), "out_proj": ("out_proj",)}
_SOURCE = {
    "query_proj": ("q_proj",),
    "key_value_proj": ("k_proj", "v_proj"),
    "out_proj": ("out_proj",),
}
"""The products of a checkpoint that form one product here, row below row."""


def _products(
    weights: Weights, there: str, here: str, dim: int, joined: dict[str, tuple[str, ...]]
) -> State:
    state = {}
    for ours, parts in joined.items():
        for kind, shape in (("weight", (dim, dim)), ("bias", (dim,))):
            taken = [weights.take(f"{there}.{part}.{kind}", *shape) for part in parts]
            state[f"{here}.{ours}.{kind}"] = torch.cat(taken)
    return state
