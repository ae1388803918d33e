"""What of a Transformer's options cannot work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.training.tiny import TINY
from training.errors import ConfigError

EMBEDDINGS = [
    ({"source_vocab_size": -1}, "source_vocab_size must be >= 0, got -1"),
    ({"tie_embeddings": False, "fix_norm": True}, "fix_norm needs tie_embeddings: true"),
]
ENCODER = [
    ({"encoder_ffn_dim": -1}, "encoder_ffn_dim must be >= 0, got -1"),
    ({"encoder_dim": 7}, "encoder_dim must be 0, or even and >= 4, got 7"),
    ({"encoder_heads": 4}, "encoder_heads needs head_dim > 0.* got head_dim: 0"),
    (
        {"encoder_dim": 24, "encoder_heads": 4, "head_dim": 6, "share_layers": True},
        "encoder_dim and encoder_heads needs .*share_layers: true",
    ),
    ({"encoder_dim": 24, "head_dim": 6}, "encoder_dim: 24 needs .* source_vocab_size: 0"),
]
HEADS = [
    ({"head_dim": 5}, "head_dim must be 0 or even, got 5"),
    ({"head_dim": 6, "block": "weighted"}, "block: weighted .*head_dim: 6"),
    (
        {"head_dim": 6, "encoder_mixing": "light_conv"},
        "encoder_mixing: light_conv .*head_dim: 6",
    ),
    ({"block": "weighted", "ffn_dim": 25}, "weighted.*ffn_dim.*num_heads = 2, got 25"),
]
STEPS = [
    ({"halting": True}, "halting.*share_layers"),
    ({"halting_threshold": 1.0}, "halting_threshold must be in"),
    ({"ponder_weight": -1.0}, "ponder_weight must be >= 0"),
    ({"share_layers": True, "encoder_layerdrop": 0.2}, "encoder_layerdrop.*share_layers"),
    ({"share_layers": True, "decoder_layerdrop": 0.2}, "decoder_layerdrop.*share_layers"),
]
POSITIONS = [
    ({"positions": "alibi"}, "positions .*'relative', 'rotary'.*got 'alibi'"),
    (
        {"positions": "relative_bias", "decoder_mixing": "ssru"},
        "positions: relative_bias .*decoder_mixing: ssru",
    ),
    (
        {"positions": "relative_bias", "num_buckets": 32, "max_distance": 16},
        "max_distance must be > num_buckets / 2 = 16.*got 16",
    ),
    ({"positions": "relative_bias", "num_buckets": 7}, "num_buckets .*even.*got 7"),
]
CONVOLUTIONS = [
    (
        {"encoder_mixing": "light_conv", "encoder_kernel_sizes": (3, 4)},
        "encoder_kernel_sizes must be odd numbers from 3 on, got 4",
    ),
    (
        {"decoder_mixing": "dynamic_conv", "decoder_kernel_sizes": (3,)},
        r"one width for each of num_decoder_layers = 2 layers, got \[3\]",
    ),
    (
        {"decoder_kernel_sizes": (3, 3)},
        "decoder_kernel_sizes needs decoder_mixing to be one of .*, got 'attention'",
    ),
    ({"kernel_dropout": 0.1}, "kernel_dropout needs encoder_mixing or decoder_mixing"),
    ({"kernel_softmax": False}, "kernel_softmax: false needs encoder_mixing or decoder_mixing"),
    ({"encoder_mixing": "light_conv", "kernel_dropout": 1.0}, r"must be in \[0, 1\), got 1.0"),
    ({"encoder_mixing": "ssru"}, "encoder_mixing of architecture 'transformer' must be one of"),
    (
        {"share_layers": True, "decoder_mixing": "light_conv"},
        "share_layers.*decoder_mixing: light_conv",
    ),
    ({"block": "weighted", "encoder_mixing": "light_conv"}, "weighted.*encoder_mixing"),
]


@pytest.mark.parametrize(
    ("changes", "message"), [*EMBEDDINGS, *ENCODER, *HEADS, *STEPS, *POSITIONS, *CONVOLUTIONS]
)
def test_what_cannot_work_is_one_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **changes)
