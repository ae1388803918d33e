"""The layers of the papers, written with plain loops over sentences, heads and positions.

Everything is float64 and one sentence at a time, without padding, caches or batches. Weights come
from a module's state dict. Shape letters: T tokens, S source positions, D model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.models import TransformerConfig

Array = NDArray[np.float64]
Weights = dict[str, Array]


def weights_of(module: Any) -> Weights:
    return {k: v.detach().double().numpy() for k, v in module.state_dict().items()}


def part(weights: Weights, prefix: str) -> Weights:
    return {k[len(prefix) + 1 :]: v for k, v in weights.items() if k.startswith(prefix + ".")}


def linear(x_TD: Array, weights: Weights, name: str) -> Array:
    return x_TD @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x_TD: Array, weights: Weights) -> Array:
    rows = []
    for x_D in x_TD:
        mean = x_D.sum() / len(x_D)
        variance = ((x_D - mean) ** 2).sum() / len(x_D)
        rows.append((x_D - mean) / math.sqrt(variance + 1e-5) * weights["weight"] + weights["bias"])
    return np.stack(rows)


def attend(query_TD: Array, key_SD: Array, value_SD: Array, heads: int, *, causal: bool) -> Array:
    """Vaswani et al. 2017, equation 1, head by head, query by query, key by key."""
    out = np.zeros_like(query_TD)
    width = query_TD.shape[1] // heads
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        for t, query in enumerate(query_TD[:, columns]):
            reach = t + 1 if causal else len(key_SD)
            weights = [
                math.exp(float(query @ key_SD[s, columns]) / math.sqrt(width)) for s in range(reach)
            ]
            for s, weight in enumerate(weights):
                out[t, columns] += weight / sum(weights) * value_SD[s, columns]
    return out


def self_attention(x_TD: Array, weights: Weights, heads: int, *, causal: bool) -> Array:
    dim = x_TD.shape[1]
    projected = linear(x_TD, weights, "in_proj")
    query, key, value = (projected[:, i * dim : (i + 1) * dim] for i in range(3))
    return linear(attend(query, key, value, heads, causal=causal), weights, "out_proj")


def source_attention(x_TD: Array, memory_SD: Array, weights: Weights, heads: int) -> Array:
    dim = x_TD.shape[1]
    projected = linear(memory_SD, weights, "key_value_proj")
    query = linear(x_TD, weights, "query_proj")
    out = attend(query, projected[:, :dim], projected[:, dim:], heads, causal=False)
    return linear(out, weights, "out_proj")


def feed_forward(x_TD: Array, weights: Weights) -> Array:
    return linear(np.maximum(linear(x_TD, weights, "up_proj"), 0.0), weights, "down_proj")


class ReferenceLayer:
    """One layer: its sublayers in the order of the papers."""

    def __init__(self, weights: Weights, config: TransformerConfig) -> None:
        self.weights, self.config = weights, config

    def sublayer(self, x: Array, name: str, function: Any, scale: float = 1.0) -> Array:
        """The residual around one sublayer; `name` is that of its residual in the module."""
        norm = part(self.weights, f"{name}_residual.norm")
        if self.config.norm == "pre":
            return x + scale * function(layer_norm(x, norm))
        return layer_norm(x + scale * function(x), norm)

    def ffn(self, x: Array, name: str, scale: float) -> Array:
        weights = part(self.weights, name)
        return self.sublayer(x, name, lambda y: feed_forward(y, weights), scale)

    def __call__(self, x: Array, memory: Array | None) -> Array:
        """An encoder layer where there is no memory, a decoder layer where there is."""
        heads, macaron = self.config.num_heads, self.config.block == "macaron"
        own = part(self.weights, "self_attention")
        if macaron:
            x = self.ffn(x, "first_ffn", 0.5)
        x = self.sublayer(
            x,
            "self_attention",
            lambda y: self_attention(y, own, heads, causal=memory is not None),
        )
        if memory is not None:
            source = part(self.weights, "source_attention")
            x = self.sublayer(
                x, "source_attention", lambda y: source_attention(y, memory, source, heads)
            )
        return self.ffn(x, "ffn", 0.5 if macaron else 1.0)


def sinusoid(position: int, dim: int) -> Array:
    """Row `position` of CONTRACTS: sinusoid(p + 1), sine half, then cosine half."""
    half = dim // 2
    angles = [(position + 1) * math.exp(-i * math.log(10000) / (dim / 2 - 1)) for i in range(half)]
    return np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def embed(ids: list[int], weights: Weights) -> Array:
    table = weights["embedding.weight"]
    dim = table.shape[1]
    return np.stack([table[id_] * math.sqrt(dim) + sinusoid(p, dim) for p, id_ in enumerate(ids)])


def logits(source: list[int], target: list[int], model: Any) -> Array:
    """Logits [T,V] of one sentence pair by the whole reference model."""
    weights, config = weights_of(model), model.config
    memory, x = embed(source, weights), embed(target, weights)
    for layer in range(config.num_encoder_layers):
        memory = ReferenceLayer(part(weights, f"encoder.{layer}"), config)(memory, None)
    if config.norm == "pre":
        memory = layer_norm(memory, part(weights, "encoder_norm"))
    for layer in range(config.num_decoder_layers):
        x = ReferenceLayer(part(weights, f"decoder.{layer}"), config)(x, memory)
    if config.norm == "pre":
        x = layer_norm(x, part(weights, "decoder_norm"))
    return x @ weights["embedding.weight"].T
