"""Tiny language models with every parameter away from its initial zero or one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from training.models import CausalLanguageModel, LanguageModelConfig, build_network

TINY_LM = LanguageModelConfig(
    model_dim=16,
    num_heads=2,
    ffn_dim=24,
    num_decoder_layers=3,
    vocab_size=37,
    first_window=2,
    dropout=0.0,
    attention_bias=False,
    output_bias=True,
)


def tiny_lm(seed: int = 0, **changes: Any) -> CausalLanguageModel:
    """In evaluation mode, all parameters random."""
    model = randomised_lm(replace(TINY_LM, **changes), seed)
    assert isinstance(model, CausalLanguageModel)
    return model


def randomised_lm(config: LanguageModelConfig, seed: int = 0) -> CausalLanguageModel:
    torch.manual_seed(seed)
    model = build_network(config)
    assert isinstance(model, CausalLanguageModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()
