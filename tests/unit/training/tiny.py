"""Tiny models with every parameter away from its initial zero or one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from training.models import (
    JointConfig,
    JointModel,
    ModelConfig,
    Transformer,
    TransformerConfig,
    TranslationModel,
    build_model,
)

TINY = TransformerConfig(
    model_dim=16,
    num_heads=2,
    ffn_dim=24,
    num_encoder_layers=2,
    num_decoder_layers=2,
    vocab_size=37,
    dropout=0.0,
)
TINY_JOINT = JointConfig(
    model_dim=16,
    num_heads=2,
    ffn_dim=24,
    num_encoder_layers=2,
    num_decoder_layers=2,
    vocab_size=37,
    dropout=0.0,
)


def tiny_model(block: str = "standard", norm: str = "pre", seed: int = 0) -> Transformer:
    """In evaluation mode; biases and norms are random, so that a forgotten one shows."""
    model = randomised(replace(TINY, block=block, norm=norm), seed)
    assert isinstance(model, Transformer)
    return model


def tiny_joint_model(seed: int = 0, **changes: Any) -> JointModel:
    """The same with a joint representation; `changes` are fields of its configuration."""
    model = randomised(replace(TINY_JOINT, **changes), seed)
    assert isinstance(model, JointModel)
    return model


def randomised(config: ModelConfig, seed: int = 0) -> TranslationModel:
    """A model of that configuration, in evaluation mode."""
    torch.manual_seed(seed)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()
