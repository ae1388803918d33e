"""What of a language model's options cannot work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.training.tiny_language import TINY_LM
from training.errors import ConfigError


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "middle"},
        {"attention": "sparse"},
        {"block": "tests:OWN"},
        {"positions": "learned"},
        {"max_positions": 5},
        {"positions": "learnt", "max_positions": 0},
        {"num_kv_heads": 3},
        {"num_kv_heads": 1, "positions": "relative"},
        {"rotary_base": 1.0},
        {"tie_embeddings": False, "fix_norm": True},
        {"dropout_layers": "first"},
        {"num_encoder_layers": 1},
        {"kernel_size": 0},
        {"first_window": 0},
        {"output_dropout": 1.0},
    ],
)
def test_a_value_out_of_range_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(TINY_LM, **change)
    assert all(name in str(refused.value) for name in change)


def test_biases_of_distances_are_no_positions_of_a_language_model() -> None:
    with pytest.raises(ConfigError, match=r"positions .*got 'relative_bias'"):
        replace(TINY_LM, positions="relative_bias")


def test_vectors_of_distances_have_no_place_in_sparse_attention() -> None:
    with pytest.raises(ConfigError, match=r"positions: relative .*attention: full.*cascade"):
        replace(TINY_LM, attention="cascade", positions="relative")
