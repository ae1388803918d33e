"""Tiny models with every parameter away from its initial zero or one."""

from __future__ import annotations

from dataclasses import replace

import torch

from training.models import Transformer, TransformerConfig, build_model

TINY = TransformerConfig(
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
    torch.manual_seed(seed)
    model = build_model(replace(TINY, block=block, norm=norm))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()
