"""The joint representation (Li et al. 2020), written with plain loops over pairs of positions.

As in `reference_blocks`: float64, one sentence, no padding, caches or batches. Shape letters:
T target positions, S source positions, D model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.unit.training.models.reference_blocks import (
    Array,
    ReferenceLayer,
    Weights,
    embed,
    feed_forward,
    normalise,
    normalise_output,
    part,
    self_attention,
    vectors_of,
    weights_of,
)
from training.models import JointConfig, TransformerConfig


class ReferenceJointLayer:
    """Section 3.2: four pre-norm sublayers; each method is one of them without its residual."""

    def __init__(self, weights: Weights, config: JointConfig) -> None:
        self.weights, self.config = weights, config

    def target_attention(self, x_TSD: Array) -> Array:
        """Along the target, for every source position by itself."""
        weights, out = part(self.weights, "target_attention"), np.zeros_like(x_TSD)
        for s in range(x_TSD.shape[1]):
            out[:, s] = self_attention(x_TSD[:, s], weights, self.config, causal=True)
        return out

    def source_attention(self, x_TSD: Array) -> Array:
        """Along the source, for every target position by itself."""
        weights, out = part(self.weights, "source_attention"), np.zeros_like(x_TSD)
        for t in range(x_TSD.shape[0]):
            out[t] = self_attention(x_TSD[t], weights, self.config, causal=False)
        return out

    def first_ffn(self, x_TSD: Array) -> Array:
        weights = part(self.weights, "first_ffn")
        return np.stack([feed_forward(x_SD, weights, self.config) for x_SD in x_TSD])

    def ffn(self, x_TSD: Array) -> Array:
        weights = part(self.weights, "ffn")
        return np.stack([feed_forward(x_SD, weights, self.config) for x_SD in x_TSD])

    def sublayer(self, x_TSD: Array, name: str) -> Array:
        norm = part(self.weights, f"{name}_residual.norm")
        function: Callable[[Array], Array] = getattr(self, name)
        return x_TSD + function(np.stack([normalise(x_SD, norm, self.config) for x_SD in x_TSD]))

    def __call__(self, x_TSD: Array) -> Array:
        for name in ("target_attention", "first_ffn", "source_attention", "ffn"):
            x_TSD = self.sublayer(x_TSD, name)
        return x_TSD


def reduction(x_TSD: Array, weights: Weights, config: JointConfig) -> tuple[Array, Array]:
    """Equation 6, feature by feature: [T,D] and its weights [T,S,D]."""
    targets, sources, dim = x_TSD.shape
    out, shares = np.zeros((targets, dim)), np.zeros_like(x_TSD)
    w_ED = weights["scores.weight"]
    for t in range(targets):
        x_SD = normalise(x_TSD[t], part(weights, "norm"), config)
        for e in range(dim):
            powers = [math.exp(float(w_ED[e] @ x_SD[s])) for s in range(sources)]
            for s in range(sources):
                shares[t, s, e] = powers[s] / sum(powers)
                out[t, e] += shares[t, s, e] * x_SD[s, e]
    return out, shares


def decode(source: list[int], target: list[int], model: Any) -> tuple[Array, Array]:
    """Logits [T,V] of one sentence pair and Reduction's weights [T,S,D]."""
    weights, config = weights_of(model), model.config
    target_table = vectors_of(weights, config)
    source_table = output = target_table
    if not config.tie_embeddings:
        source_table, output = weights["source_embedding.weight"], weights["output"]
    absolute = config.positions == "sinusoid"
    source_SD = embed(source, source_table, config.embedding_scale, positions=absolute)
    # The PreNet is a Transformer's encoder.
    shared = ("model_dim", "num_heads", "ffn_dim", "activation", "norm_type", "norm_eps")
    shared += ("ffn_hidden_layers", "positions", "max_relative_distance")
    prenet = TransformerConfig(**{name: getattr(config, name) for name in shared})
    for layer in range(config.num_encoder_layers):
        source_SD = ReferenceLayer(part(weights, f"encoder.{layer}"), prenet)(source_SD, None)
    if config.num_encoder_layers:
        source_SD = normalise(source_SD, part(weights, "encoder_norm"), config)
    target_TD = embed(target, target_table, config.embedding_scale, positions=absolute)
    x_TSD = np.zeros((len(target), len(source), config.model_dim))
    for t, target_D in enumerate(target_TD):
        for s, source_D in enumerate(source_SD):
            x_TSD[t, s] = source_D + target_D
    for layer in range(config.num_decoder_layers):
        x_TSD = ReferenceJointLayer(part(weights, f"layers.{layer}"), config)(x_TSD)
    y_TD, shares = reduction(x_TSD, part(weights, "reduction"), config)
    y_TD = normalise_output(y_TD, part(weights, "decoder_norm"), config, norm=True)
    return y_TD @ output.T, shares
