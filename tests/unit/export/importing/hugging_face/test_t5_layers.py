"""Which of T5's tensors stands where, and what its scales become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights
from export.importing.hugging_face.t5_layers import read_config, t5_state
from export.importing.layers import State
from export.importing.model import loaded
from tests.unit.export.importing.hugging_face.small_t5 import (
    BUCKETS,
    DIM,
    HEADS,
    OPTIONS,
    WIDTH,
    t5_tensors,
)
from training.models import TransformerConfig

SIZE = 9


def read(given: dict[str, Tensor], **told: Any) -> tuple[TransformerConfig, State, bool]:
    options = Options(Path("config.json"), {**OPTIONS, "vocab_size": SIZE, **told})
    weights = Weights(Path("m"), dict(given))
    config, scales = read_config(options, weights)
    state = t5_state(weights, config, scales_output=scales)
    loaded(config, state)
    return config, state, scales


def test_each_tensor_has_its_place_and_queries_their_scale() -> None:
    given = t5_tensors(SIZE)
    config, state, _ = read(given)
    assert (config.head_dim, config.num_buckets, config.max_distance) == (
        WIDTH // HEADS,
        BUCKETS,
        128,
    )
    assert (config.activation, config.norm_type, config.attention_bias) == ("relu", "rms", False)
    root = (WIDTH // HEADS) ** 0.5
    for side in ("encoder", "decoder"):
        there = f"{side}.block.0.layer"
        query, key, value = (given[f"{there}.0.SelfAttention.{part}.weight"] for part in "qkv")
        ours = state[f"{side}.0.self_attention.in_proj.weight"]
        assert torch.allclose(ours, torch.cat([query * root, key, value]))
        table = given[f"{there}.0.SelfAttention.relative_attention_bias.weight"]
        assert torch.equal(state[f"{side}_bias.weight_1RH"][0], table)
    there = "decoder.block.0.layer"
    query = given[f"{there}.1.EncDecAttention.q.weight"]
    assert torch.allclose(state["decoder.0.source_attention.query_proj.weight"], query * root)
    for ours, theirs in {
        "decoder.0.source_attention.out_proj.weight": f"{there}.1.EncDecAttention.o.weight",
        "decoder.0.source_attention_residual.norm.weight": f"{there}.1.layer_norm.weight",
        "decoder.0.ffn_residual.norm.weight": f"{there}.2.layer_norm.weight",
        "encoder.0.ffn.down_proj.weight": "encoder.block.0.layer.1.DenseReluDense.wo.weight",
        "encoder_norm.weight": "encoder.final_layer_norm.weight",
    }.items():
        assert torch.equal(state[ours], given[theirs]), ours


@pytest.mark.parametrize(
    ("told", "scales"),
    [
        ({}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
        ({"model_type": "mt5", "feed_forward_proj": "relu"}, False),
    ],
)
def test_states_are_scaled_before_the_output_where_the_options_say_so(
    told: dict[str, Any], scales: bool
) -> None:
    given = t5_tensors(SIZE)
    _, state, found = read(given, **told)
    assert found is scales
    gain = given["decoder.final_layer_norm.weight"]
    wanted = gain * DIM**-0.5 if scales else gain
    assert torch.allclose(state["decoder_norm.weight"], wanted)


def test_the_output_is_its_own_where_the_files_hold_another() -> None:
    given = t5_tensors(SIZE, output=True)
    config, state, _ = read(given)
    assert not config.tie_embeddings
    assert torch.equal(state["output_matrix"], given["lm_head.weight"])
    given["lm_head.weight"] = given["shared.weight"].clone()
    assert read(given)[0].tie_embeddings


@pytest.mark.parametrize(
    ("told", "activation"),
    [
        ({"feed_forward_proj": "gated-gelu"}, "geglu_tanh"),
        ({"feed_forward_proj": "gated-silu"}, "swiglu"),
        ({"model_type": "mt5"}, "geglu_tanh"),
    ],
)
def test_gates_stand_before_what_they_let_through(told: dict[str, Any], activation: str) -> None:
    given = t5_tensors(SIZE, gated=True)
    config, state, _ = read(given, **told)
    assert config.activation == activation
    there = "encoder.block.0.layer.1.DenseReluDense"
    both = torch.cat([given[f"{there}.wi_{i}.weight"] for i in range(2)])
    assert torch.equal(state["encoder.0.ffn.up_proj.weight"], both)


def test_a_bias_that_nothing_reads_is_let_go() -> None:
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    read(t5_tensors(SIZE) | {name: torch.ones(BUCKETS, HEADS)})
    with pytest.raises(ExportError, match=r"'decoder\.gate' \[2\] is not known"):
        read(t5_tensors(SIZE) | {"decoder.gate": torch.ones(2)})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"model_type": "umt5"}, "model_type 'umt5' is not supported; it must be 't5' or 'mt5'"),
        ({"feed_forward_proj": "tanh"}, "feed_forward_proj 'tanh' is not supported"),
        ({"is_decoder": True}, "is_decoder True is not supported"),
        ({"d_kv": None}, "d_kv must be an integer"),
        ({"relative_attention_num_buckets": 3}, "config.json: "),
    ],
)
def test_options_that_are_not_supported_are_named(told: dict[str, Any], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        read(t5_tensors(SIZE), **told)
