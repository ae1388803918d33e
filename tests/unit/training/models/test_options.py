"""Options that models of every kind have: against loops, what they begin with, what cannot work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.training.models import reference_blocks, reference_joint
from tests.unit.training.models.test_language_model import TINY_LM, randomised_lm, reference_logits
from tests.unit.training.tiny import TINY, TINY_JOINT, randomised
from training.errors import ConfigError
from training.models import (
    JointConfig,
    LanguageModelConfig,
    ModelConfig,
    Network,
    build_network,
)
from training.models.attention import SelfAttention, SourceAttention
from training.models.dropout import Dropout, HeadDropout
from training.models.embedding import settled
from training.models.feed_forward import FeedForward
from training.models.norms import ScaleNorm
from training.tasks.loss import label_smoothed_loss

OPTIONS: list[dict[str, Any]] = [
    {"norm_type": "rms", "norm_eps": 0.01},
    {"norm_type": "scale"},
    {"norm_eps": 0.1},
    {"norm_type": "scale", "fix_norm": True, "fix_norm_scale": True},
    {"fix_norm": True},
    {"embedding_scale": "sum"},
    {"embedding_scale": "none"},
    {"ffn_hidden_layers": 2, "activation": "swiglu"},
    *({"activation": name} for name in ("gelu", "gelu_tanh", "silu", "reglu", "geglu", "swiglu")),
]
FAMILIES: list[ModelConfig] = [
    TINY,
    replace(TINY, norm="post", block="macaron"),
    TINY_JOINT,
    TINY_LM,
    replace(TINY_LM, norm="post", attention="cascade"),
]
SOURCE, TARGET = [5, 9, 30, 7, 11, 3], [2, 8, 6, 33, 20]


def names(configs: list[Any]) -> list[str]:
    return [repr(c) if isinstance(c, dict) else f"{c.family}-{c.norm}" for c in configs]


def random_network(config: ModelConfig) -> Network:
    return randomised_lm(config) if isinstance(config, LanguageModelConfig) else randomised(config)


def inputs_of(config: ModelConfig) -> list[torch.Tensor]:
    sides = [TARGET] if isinstance(config, LanguageModelConfig) else [SOURCE, TARGET]
    return [torch.tensor([side]) for side in sides]


def expected_logits(model: Any) -> np.ndarray:
    if isinstance(model.config, LanguageModelConfig):
        return reference_logits(TARGET, model)
    if isinstance(model.config, JointConfig):
        return reference_joint.decode(SOURCE, TARGET, model)[0]
    return reference_blocks.logits(SOURCE, TARGET, model)


@pytest.mark.parametrize("config", FAMILIES, ids=names(FAMILIES))
@pytest.mark.parametrize("options", OPTIONS, ids=names(OPTIONS))
def test_logits_equal_the_loop_written_reference(
    config: ModelConfig, options: dict[str, Any]
) -> None:
    model = random_network(replace(config, **options))
    found = model(*inputs_of(config))[0].detach().numpy()
    np.testing.assert_allclose(found, expected_logits(model), rtol=1e-4, atol=1e-3)
    assert np.abs(found - expected_logits(random_network(config))).max() > 0.01


@pytest.mark.parametrize("config", FAMILIES, ids=names(FAMILIES))
@pytest.mark.parametrize("options", OPTIONS, ids=names(OPTIONS))
def test_a_few_updates_teach_a_sentence(config: ModelConfig, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = build_network(replace(config, **options)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        states = model.states(*inputs_of(config))
        loss = label_smoothed_loss(model, states, torch.tensor([[8, 6, 33, 20, 3]]), 0.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


# Norms


def test_the_gradient_of_scale_norm_is_that_of_its_formula_above_and_below_its_bound() -> None:
    torch.manual_seed(0)
    norm = ScaleNorm(6, eps=1.0).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    x[2:] *= 0.1  # shorter than the bound
    assert torch.autograd.gradcheck(norm, x.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda gain: torch.func.functional_call(norm, {"weight": gain}, (x.detach(),)),
        torch.tensor([1.7], dtype=torch.float64, requires_grad=True),
    )


def test_scale_norm_begins_with_the_length_that_layer_norm_gives() -> None:
    norm = ScaleNorm(64, eps=1e-5)
    torch.testing.assert_close(norm(torch.randn(3, 64) * 7).norm(dim=-1), torch.full((3,), 8.0))
    zero = torch.zeros(1, 64, requires_grad=True)
    norm(zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()
    assert not norm(zero).any()


@pytest.mark.parametrize("kind", ["rms", "scale"])
@pytest.mark.parametrize("config", FAMILIES, ids=names(FAMILIES))
def test_every_norm_of_a_model_is_of_the_type(config: ModelConfig, kind: str) -> None:
    plain, model = build_network(config), build_network(replace(config, norm_type=kind))
    wanted = {"rms": nn.RMSNorm, "scale": ScaleNorm}[kind]
    norms = [name for name, part in plain.named_modules() if isinstance(part, nn.LayerNorm)]
    assert norms == [name for name, part in model.named_modules() if isinstance(part, wanted)]
    assert norms


# FixNorm


@pytest.mark.parametrize("config", FAMILIES, ids=names(FAMILIES))
def test_with_fix_norm_only_the_directions_of_vectors_count(config: ModelConfig) -> None:
    model = random_network(replace(config, fix_norm=True))
    before = model(*inputs_of(config))
    before.square().sum().backward()
    weight = model.embedding.weight
    along = (weight.grad * weight).sum(-1) / weight.grad.norm(dim=-1) / weight.norm(dim=-1)
    assert along.abs().max() < 1e-4
    with torch.no_grad():
        weight.mul_(torch.rand(len(weight), 1) + 0.5)
    torch.testing.assert_close(model(*inputs_of(config)), before, rtol=1e-4, atol=1e-4)


def test_with_fix_norm_padding_changes_nothing() -> None:
    model = randomised(replace(TINY, fix_norm=True))
    alone = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
    torch.testing.assert_close(padded[:, : len(TARGET)], alone, rtol=0, atol=1e-5)


def test_vectors_of_fix_norm_begin_small_and_all_with_a_direction() -> None:
    weight = build_network(replace(TINY, fix_norm=True, vocab_size=500)).embedding.weight.detach()
    assert 0.0099 < float(weight.abs().max()) <= 0.01
    assert (weight.norm(dim=-1) > 0).all()  # of padding, too


def test_a_settled_model_computes_the_same_from_vectors_as_they_stand() -> None:
    plain = randomised(TINY)
    assert settled(plain) is plain
    model = randomised(replace(TINY, fix_norm=True, fix_norm_scale=True))
    kept = model.embedding.weight.clone()
    stands = settled(model)
    assert torch.equal(stands(*inputs_of(TINY)), model(*inputs_of(TINY)))
    assert torch.equal(stands.embedding.weight, model.output_weight)
    assert stands.output_weight is stands.embedding.weight
    assert torch.equal(model.embedding.weight, kept)
    torch.testing.assert_close(stands.embedding.weight.norm(dim=-1), torch.ones(37))


# What attention begins with


@pytest.mark.parametrize("config", [TINY, TINY_JOINT, TINY_LM], ids=lambda config: config.family)
def test_small_init_makes_attention_smaller_and_nothing_else(config: ModelConfig) -> None:
    wide = replace(config, model_dim=64, ffn_dim=256)
    torch.manual_seed(0)
    plain = build_network(wide)
    torch.manual_seed(0)
    small = build_network(replace(wide, attention_init="small"))
    matrices = 0
    for module in small.modules():
        if isinstance(module, SelfAttention | SourceAttention):
            for layer in module.children():
                if isinstance(layer, HeadDropout):
                    continue
                assert isinstance(layer, nn.Linear)
                deviation = layer.weight.std().item()
                assert deviation == pytest.approx(math.sqrt(2 / (64 + 4 * 64)), rel=0.05)
                assert layer.bias is None or not layer.bias.any()
                matrices += 1
    assert matrices >= 6
    for (name, one), (_, other) in zip(
        plain.named_parameters(), small.named_parameters(), strict=True
    ):
        assert torch.equal(one, other) == ("_proj.weight" not in name or "ffn" in name), name


# Feed-forward


@pytest.mark.parametrize("activation", ["reglu", "geglu", "swiglu"])
def test_two_thirds_of_the_width_keep_the_parameters_of_a_gated_feed_forward(
    activation: str,
) -> None:
    plain = FeedForward(32, 96, Dropout(0.0))
    gated = FeedForward(32, 64, Dropout(0.0), activation)
    counts = [
        sum(p.numel() for name, p in ffn.named_parameters() if name.endswith("weight"))
        for ffn in (plain, gated)
    ]
    assert counts[0] == counts[1]
    # Both halves begin as matrices of their own: Xavier's bound is sqrt(6 / (32 + 64)).
    for half in gated.up_proj.weight.detach().chunk(2):
        assert float(half.abs().max()) == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(
    "activation", ["gelu", "gelu_tanh", "silu", "reglu", "geglu", "geglu_tanh", "swiglu"]
)
def test_the_gradient_of_a_feed_forward_is_that_of_its_formula(activation: str) -> None:
    torch.manual_seed(0)
    ffn = FeedForward(4, 5, Dropout(0.0), activation).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ffn, x)


# What cannot work


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (TINY_JOINT, {"tie_embeddings": False, "fix_norm": True}, r"fix_norm .*tie_embeddings"),
        (TINY, {"fix_norm_scale": True}, "fix_norm_scale .*fix_norm"),
        (TINY, {"norm_type": "batch"}, "norm_type .*'layer', 'rms', 'scale'.*got 'batch'"),
        (TINY_LM, {"activation": "glu"}, "activation .*'geglu', 'swiglu'.*got 'glu'"),
        (TINY_LM, {"norm_eps": 0.0}, "norm_eps must be > 0, got 0.0"),
        (TINY_LM, {"norm_eps": math.nan}, "norm_eps must be > 0, got nan"),
        (TINY, {"embedding_scale": "both"}, "embedding_scale .*got 'both'"),
        (TINY, {"tie_embeddings": False, "fix_norm": True}, r"fix_norm .*tie_embeddings"),
        (TINY, {"head_dim": 6, "block": "weighted"}, "block: weighted .*head_dim: 6"),
        (
            TINY,
            {"head_dim": 6, "encoder_mixing": "light_conv"},
            "encoder_mixing: light_conv .*head_dim: 6",
        ),
        (
            TINY,
            {"positions": "relative_bias", "decoder_mixing": "ssru"},
            "positions: relative_bias .*decoder_mixing: ssru",
        ),
        (
            TINY,
            {"positions": "relative_bias", "num_buckets": 32, "max_distance": 16},
            "max_distance must be > num_buckets / 2 = 16.*got 16",
        ),
        (TINY, {"positions": "relative_bias", "num_buckets": 7}, "num_buckets .*even.*got 7"),
        (TINY, {"head_dim": 5}, "head_dim must be 0 or even, got 5"),
        (TINY_LM, {"positions": "relative_bias"}, "positions .*got 'relative_bias'"),
        (TINY_JOINT, {"attention_init": "tiny"}, "attention_init .*'xavier', 'small'.*got 'tiny'"),
    ],
)
def test_what_cannot_work_is_one_error_that_names_it(
    config: ModelConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(config, **change)
