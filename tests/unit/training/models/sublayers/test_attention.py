"""Attention: what drops and what its matrices begin with."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.unit.training.tiny import TINY, TINY_JOINT
from tests.unit.training.tiny_language import TINY_LM
from training.models import ModelConfig, build_network
from training.models.dropout import HeadDropout
from training.models.sublayers.attention import SelfAttention, SourceAttention


def test_attention_dropout_acts_in_training_only() -> None:
    layer, x = SelfAttention(16, 2, dropout=0.5), torch.randn(1, 4, 16)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


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
