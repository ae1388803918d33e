"""The layers of the papers, written with plain loops over sentences, heads and positions.

Everything is float64 and one sentence at a time, without padding, caches or batches. Weights come
from a module's state dict. Shape letters: T tokens, S source positions, D model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.models import BertConfig, ModelConfig, TransformerConfig

Array = NDArray[np.float64]
Weights = dict[str, Array]


def weights_of(module: Any) -> Weights:
    return {k: v.detach().double().numpy() for k, v in module.state_dict().items()}


def part(weights: Weights, prefix: str) -> Weights:
    return {k[len(prefix) + 1 :]: v for k, v in weights.items() if k.startswith(prefix + ".")}


def linear(x_TD: Array, weights: Weights, name: str) -> Array:
    return x_TD @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def normalise(x_TD: Array, weights: Weights, config: ModelConfig) -> Array:
    """LayerNorm; RMSNorm (Zhang and Sennrich 2019, equation 4); ScaleNorm (Nguyen and Salazar 2019,
    equation 5)."""
    rows = []
    for x_D in x_TD:
        if config.norm_type == "layer":
            mean = x_D.sum() / len(x_D)
            variance = sum((x - mean) ** 2 for x in x_D) / len(x_D)
            row = (x_D - mean) / math.sqrt(variance + config.norm_eps)
            rows.append(row * weights.get("weight", 1.0) + weights.get("bias", 0.0))
        elif config.norm_type == "rms":
            mean_square = sum(x * x for x in x_D) / len(x_D)
            rows.append(x_D / math.sqrt(mean_square + config.norm_eps) * weights["weight"])
        else:
            length = math.sqrt(sum(x * x for x in x_D))
            rows.append(x_D * float(weights["weight"][0]) / max(length, config.norm_eps))
    return np.stack(rows)


def normalise_output(x_TD: Array, weights: Weights, config: ModelConfig, *, norm: bool) -> Array:
    """What stands before the output matrix: the last norm, if any, and FixNorm's factor."""
    if config.fix_norm_scale:
        if norm:
            x_TD = normalise(x_TD, part(weights, "0"), config)
        return x_TD * float(weights["1.weight"][0])
    return normalise(x_TD, weights, config) if norm else x_TD


def vectors_of(weights: Weights, config: ModelConfig) -> Array:
    """The embedding, with FixNorm row by row at length one."""
    table = weights["embedding.weight"]
    if not config.fix_norm:
        return table
    return np.stack([row / math.sqrt(sum(x * x for x in row)) for row in table])


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


def activate(x: float, name: str) -> float:
    if name in ("relu", "reglu"):
        return max(x, 0.0)
    if name in ("gelu", "geglu"):  # x times the normal distribution's share below x
        return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))
    return x / (1.0 + math.exp(-x))


def feed_forward(x_TD: Array, weights: Weights, config: ModelConfig, activation: str = "") -> Array:
    """Vaswani et al. 2017, equation 2; gated: Shazeer 2020, equation 6."""
    wide, size = linear(x_TD, weights, "up_proj"), config.ffn_dim
    name = activation or config.activation
    hidden = np.zeros((len(x_TD), size))
    for t, wide_t in enumerate(wide):
        for i in range(size):
            hidden[t, i] = activate(float(wide_t[i]), name)
            if name.endswith("glu"):
                hidden[t, i] *= wide_t[size + i]
    return linear(hidden, weights, "down_proj")


class ReferenceLayer:
    """One layer: its sublayers in the order of the papers."""

    def __init__(self, weights: Weights, config: TransformerConfig | BertConfig) -> None:
        self.weights, self.config = weights, config

    def sublayer(self, x: Array, name: str, function: Any, scale: float = 1.0) -> Array:
        """The residual around one sublayer; `name` is that of its residual in the module."""
        norm = part(self.weights, f"{name}_residual.norm")
        if self.config.norm == "pre":
            return x + scale * function(normalise(x, norm, self.config))
        return normalise(x + scale * function(x), norm, self.config)

    def ffn(self, x: Array, name: str, scale: float) -> Array:
        weights, config = part(self.weights, name), self.config
        activation = config.first_activation if name == "first_ffn" else config.activation
        return self.sublayer(x, name, lambda y: feed_forward(y, weights, config, activation), scale)

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


def embed(ids: list[int], table: Array, scale: str) -> Array:
    """`scale` is what sqrt(D) multiplies: the `token`, its `sum` with the position, or `none`."""
    root = math.sqrt(table.shape[1])
    rows = []
    for p, id_ in enumerate(ids):
        position = sinusoid(p, table.shape[1])
        if scale == "sum":
            rows.append((table[id_] + position) * root)
        else:
            rows.append(table[id_] * (root if scale == "token" else 1.0) + position)
    return np.stack(rows)


def logits(source: list[int], target: list[int], model: Any) -> Array:
    """Logits [T,V] of one sentence pair by the whole reference model."""
    weights, config = weights_of(model), model.config
    table = vectors_of(weights, config)
    memory, x = (embed(ids, table, config.embedding_scale) for ids in (source, target))
    for layer in range(config.num_encoder_layers):
        memory = ReferenceLayer(part(weights, f"encoder.{layer}"), config)(memory, None)
    if config.norm == "pre":
        memory = normalise(memory, part(weights, "encoder_norm"), config)
    for layer in range(config.num_decoder_layers):
        x = ReferenceLayer(part(weights, f"decoder.{layer}"), config)(x, memory)
    x = normalise_output(x, part(weights, "decoder_norm"), config, norm=config.norm == "pre")
    return x @ table.T
