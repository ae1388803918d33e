"""Weights by the names of T5, without its library."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.unit.export.importing.small_bart import random_tensors

DIM, WIDTH, HEADS, FFN, BUCKETS = 8, 12, 2, 10, 4
OPTIONS: dict[str, Any] = {
    "d_model": DIM,
    "d_kv": WIDTH // HEADS,
    "num_heads": HEADS,
    "d_ff": FFN,
    "num_layers": 1,
    "relative_attention_num_buckets": BUCKETS,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


def t5_tensors(size: int, *, gated: bool = False, output: bool = False) -> dict[str, Tensor]:
    """One layer on each side, whose heads are wider than the model."""
    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (size, DIM)}
    if output:
        shapes["lm_head.weight"] = (size, DIM)
    for side in ("encoder", "decoder"):
        there = f"{side}.block.0.layer"
        attentions = ["SelfAttention"] + ["EncDecAttention"] * (side == "decoder")
        for place, attention in enumerate(attentions):
            for part in "qkv":
                shapes[f"{there}.{place}.{attention}.{part}.weight"] = (WIDTH, DIM)
            shapes[f"{there}.{place}.{attention}.o.weight"] = (DIM, WIDTH)
            shapes[f"{there}.{place}.layer_norm.weight"] = (DIM,)
        last = f"{there}.{len(attentions)}"
        for name in ("wi_0", "wi_1") if gated else ("wi",):
            shapes[f"{last}.DenseReluDense.{name}.weight"] = (FFN, DIM)
        shapes[f"{last}.DenseReluDense.wo.weight"] = (DIM, FFN)
        shapes[f"{last}.layer_norm.weight"] = (DIM,)
        bias = f"{there}.0.SelfAttention.relative_attention_bias.weight"
        shapes[bias] = (BUCKETS, HEADS)
        shapes[f"{side}.final_layer_norm.weight"] = (DIM,)
    return random_tensors(shapes)
