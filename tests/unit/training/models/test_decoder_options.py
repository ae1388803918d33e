"""Options that language models of others have brought: each against what it says, written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.training.tiny_language import TINY_LM, tiny_lm
from training.errors import ConfigError
from training.models.context import CacheContext
from training.models.networks.language_model import PlacedTokens
from training.models.sublayers.light_attention import LightSelfAttention, layer_offsets, layer_reach
from training.models.sublayers.norms import QueryKeyNorm
from training.models.sublayers.positions import RotaryPositions, rotary_slowing
from training.tasks.loss import label_smoothed_loss

FORMS: list[dict[str, Any]] = [
    {"norm": "output", "query_key_norm": "width", "norm_type": "rms"},
    {"norm": "sandwich", "query_key_norm": "head", "norm_type": "rms", "positions": "rotary",
     "head_dim": 12, "num_kv_heads": 1},
    {"block": "parallel", "positions": "rotary", "rotary_dim": 4},
    {"attention": "windows", "layer_windows": (3, 0), "attention_soft_cap": 0.5,
     "logit_soft_cap": 2.0},
    {"attention": "windows", "layer_windows": (3, 0), "positions": "rotary",
     "window_rotary_base": 50.0, "rotary_scaling": "linear", "rotary_factor": 4.0},
    {"positions": "rotary", "rotary_layers": (1, 0)},
    {"positions": "none", "attention_bias": True, "attention_output_bias": False},
    {"attention": "dilated", "attention_soft_cap": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("options", FORMS)
def test_decoding_token_by_token_equals_teacher_forcing(options: dict[str, Any]) -> None:
    model = tiny_lm(**options)
    ids_BT = torch.randint(37, (2, 13))
    expected_BTV = model(ids_BT)
    caches = [torch.zeros(cache.shape({"B": 2, "C": 13})) for cache in model.caches]
    slots_BC = torch.arange(13).expand(2, -1)
    for t in range(13):
        visible = torch.where(slots_BC <= t, 0.0, -torch.inf)[:, None, None]
        at = torch.full((2, 1), t)
        tokens = PlacedTokens(ids_BT[:, t : t + 1], at, slots_BC, at[:, 0], visible)
        step = model.decode_step(tokens, caches)
        caches = step.caches
        found = model.output_logits(step.x_BQD)[:, 0]
        torch.testing.assert_close(found, expected_BTV[:, t], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "post", "block": "parallel"},
        {"attention": "windows"},
        {"layer_windows": (3,)},
        {"attention": "windows", "layer_windows": (-1,)},
        {"attention_soft_cap": -1.0},
        {"attention_soft_cap": 1.0, "positions": "relative"},
        {"query_key_norm": "rows"},
        {"head_dim": 3},
        {"rotary_dim": 4},
        {"rotary_dim": 10, "positions": "rotary"},
        {"rotary_layers": (2,), "positions": "rotary"},
        {"window_rotary_base": 0.5, "positions": "rotary"},
        {"rotary_scaling": "listed", "positions": "rotary"},
        {"rotary_factors": (1.0, 1.0, 1.0, 0.0), "rotary_scaling": "listed",
         "positions": "rotary"},
        {"rotary_factors": (1.0,), "positions": "rotary"},
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(TINY_LM, **change)
    assert any(name in str(refused.value) for name in change)


def test_windows_are_taken_by_turns() -> None:
    config = replace(TINY_LM, attention="windows", layer_windows=(3, 0))
    assert layer_offsets(config) == [(0, 1, 2), None, (0, 1, 2)]
    assert layer_reach(config) == [3, None, 3]


def test_layers_have_positions_of_their_own() -> None:
    config = replace(
        TINY_LM, attention="windows", layer_windows=(3, 0), positions="rotary",
        window_rotary_base=50.0, rotary_scaling="linear", rotary_factor=4.0,
    )  # fmt: skip
    window, whole = config.of_layer(0), config.of_layer(1)
    assert (window.rotary_base, window.rotary_scaling) == (50.0, "none")
    assert whole is config
    some = replace(TINY_LM, positions="rotary", rotary_layers=(1, 0), rotary_dim=4)
    assert some.of_layer(0) is some
    assert some.of_layer(1).positions == "none"
    assert TINY_LM.of_layer(1) is TINY_LM


def test_a_part_of_a_head_is_turned_alone() -> None:
    whole, part = RotaryPositions(1, base=100.0), RotaryPositions(1, base=100.0, width=4)
    projected, positions = torch.randn(2, 3, 24), torch.arange(3)[None]
    found = part(projected, positions).unflatten(-1, (3, 8))
    by_head = projected.unflatten(-1, (3, 8))
    wanted = whole(by_head[..., :4].flatten(-2), positions).unflatten(-1, (3, 4))
    torch.testing.assert_close(found[..., :4], wanted)
    assert torch.equal(found[..., 4:], by_head[..., 4:])


def test_angles_are_slowed_by_factors_of_their_own() -> None:
    config = replace(
        TINY_LM, positions="rotary", rotary_scaling="listed", rotary_factors=(1.0, 1.0, 2.0, 3.0)
    )
    found = rotary_slowing(config)
    assert found is not None
    assert found.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_queries_and_keys_are_normalised_and_values_are_not() -> None:
    config = replace(TINY_LM, norm_type="rms", query_key_norm="head", num_kv_heads=1)
    norm = QueryKeyNorm(config)
    projected = torch.randn(2, 3, 32)
    query, key, value = norm(projected).split([16, 8, 8], -1)
    rms = query.unflatten(-1, (2, 8)).square().mean(-1)
    torch.testing.assert_close(rms, torch.ones_like(rms), rtol=1e-3, atol=0)
    torch.testing.assert_close(key, nn.functional.rms_norm(projected[..., 16:24], (8,), eps=1e-5))
    assert torch.equal(value, projected[..., 24:])
    wide = QueryKeyNorm(replace(config, query_key_norm="width"))(projected)
    wanted = nn.functional.rms_norm(projected[..., :16], (16,))
    torch.testing.assert_close(wide[..., :16], wanted, rtol=1e-4, atol=1e-5)


def test_a_parallel_layer_adds_what_both_make_of_one_state() -> None:
    layer = tiny_lm(block="parallel").layers[0]
    x = torch.randn(1, 5, 16)
    other = tiny_lm(block="standard").layers[0]
    other.load_state_dict(layer.state_dict())

    def added(name: str) -> torch.Tensor:
        inner = other.get_submodule(f"{name}_residual").norm(x)
        if name == "ffn":
            return other.ffn(inner)
        return other.self_attention.decode(inner, CacheContext())

    found = layer(x, CacheContext())
    torch.testing.assert_close(found, x + added("self_attention") + added("ffn"))


def test_scores_and_logits_keep_below_their_caps() -> None:
    model = tiny_lm(logit_soft_cap=0.5, attention_soft_cap=0.25)
    ids = torch.randint(37, (2, 9))
    plain = tiny_lm(attention_soft_cap=0.25)
    torch.testing.assert_close(model(ids), 0.5 * torch.tanh(plain(ids) / 0.5))
    layer = model.layers[0].self_attention
    assert isinstance(layer, LightSelfAttention)
    assert layer.cap == 0.25


def test_the_loss_is_of_logits_with_their_cap() -> None:
    model = tiny_lm(logit_soft_cap=0.5)
    ids, labels = torch.randint(37, (2, 9)), torch.randint(1, 37, (2, 9))
    found = label_smoothed_loss(model, model.states(ids), labels, 0.1)
    log_probs = model(ids).log_softmax(-1)
    nll = -log_probs.gather(2, labels[..., None]).sum()
    torch.testing.assert_close(found, 0.9 * nll - 0.1 * log_probs.mean(-1).sum())


def test_a_projection_may_have_a_bias_where_its_output_has_none() -> None:
    attention = tiny_lm(attention_bias=True, attention_output_bias=False).layers[0].self_attention
    assert attention.in_proj.bias is not None
    assert attention.out_proj.bias is None
