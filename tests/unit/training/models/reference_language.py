"""Language models, written with plain loops over layers, queries and keys.

As in `reference_blocks`: float64, one text, no padding, caches or batches. Shape letters: T tokens,
V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.unit.training.models import reference_blocks as reference
from training.models import CausalLanguageModel
from training.models.sublayers.light_attention import layer_offsets


def logits(ids: list[int], model: CausalLanguageModel) -> reference.Array:
    """Logits [T,V]: query by query, key by key."""
    config, weights = model.config, reference.weights_of(model)
    table, dim = reference.vectors_of(weights, config), config.model_dim
    absolute = config.positions == "sinusoid"
    x = reference.embed(ids, table, config.embedding_scale, positions=absolute)
    if config.norm == "post":
        x = reference.normalise(x, reference.part(weights, "embedding_norm"), config)

    def sublayer(layer: reference.Weights, name: str, scale: float, function: Any) -> None:
        nonlocal x
        norm = reference.part(layer, f"{name}_residual.norm")
        inner = reference.normalise(x, norm, config) if config.norm == "pre" else x
        x = x + scale * function(inner)
        if config.norm == "post":
            x = reference.normalise(x, norm, config)

    macaron = config.block == "macaron"
    for number, offsets in enumerate(layer_offsets(config)):
        layer = reference.part(weights, f"layers.{number}")
        if macaron:
            first = reference.part(layer, "first_ffn")
            sublayer(
                layer, "first_ffn", 0.5, lambda y, w=first: reference.feed_forward(y, w, config)
            )

        def attend(
            y: reference.Array,
            layer: reference.Weights = layer,
            offsets: tuple[int, ...] | None = offsets,
        ) -> reference.Array:
            projected = y @ layer["self_attention.in_proj.weight"].T
            own = reference.part(layer, "self_attention")
            if config.positions == "relative":  # which full attention alone may have
                out = reference.attend_to_itself(projected, own, config, causal=True)
                return out @ own["out_proj.weight"].T
            query, key, value = (projected[:, i * dim : (i + 1) * dim] for i in range(3))
            if config.positions == "rotary":
                query, key = (reference.turn(side, config.num_heads) for side in (query, key))
            rows = []
            for t in range(len(y)):
                seen = [s for s in range(t + 1) if offsets is None or t - s in offsets]
                row = reference.attend(
                    query[t : t + 1], key[seen], value[seen], config.num_heads, causal=False
                )
                rows.append(row[0])
            return np.stack(rows) @ layer["self_attention.out_proj.weight"].T

        sublayer(layer, "self_attention", 1.0, attend)
        ffn = reference.part(layer, "ffn")
        scale = 0.5 if macaron else 1.0
        sublayer(layer, "ffn", scale, lambda y, w=ffn: reference.feed_forward(y, w, config))
    last = reference.part(weights, "norm")
    x = reference.normalise_output(x, last, config, norm=config.norm == "pre")
    return x @ table.T + weights["output_bias"]
