"""Random models that end their sentences, for comparisons of whole searches."""

from __future__ import annotations

import random
from typing import Any

import torch

from serving.search.ids import EOS_ID
from training.models import (
    JointConfig,
    JointModel,
    ModelConfig,
    Transformer,
    TransformerConfig,
    TranslationModel,
    build_model,
)

VOCAB_SIZE = 200
_END = {"transformer": 1.5, "joint": 0.9}
"""Higher ends sooner."""


def ending_model(norm: str = "pre", seed: int = 8) -> Transformer:
    """A baseline Transformer."""
    model = _ending(
        TransformerConfig(
            norm=norm,
            model_dim=64,
            num_heads=4,
            ffn_dim=160,
            num_encoder_layers=2,
            num_decoder_layers=3,
            vocab_size=VOCAB_SIZE,
            dropout=0.0,
        ),
        seed,
    )
    assert isinstance(model, Transformer)
    return model


def ending_joint_model(encoder_layers: int, seed: int = 2) -> JointModel:
    """A joint model: Reformer-base, with three embeddings, where it has no encoder layers."""
    model = _ending(
        JointConfig(
            model_dim=64,
            num_heads=4,
            ffn_dim=96,
            num_encoder_layers=encoder_layers,
            num_decoder_layers=2,
            vocab_size=VOCAB_SIZE,
            tie_embeddings=encoder_layers > 0,
            dropout=0.0,
        ),
        seed,
    )
    assert isinstance(model, JointModel)
    return model


def _ending(config: ModelConfig, seed: int) -> TranslationModel:
    """Every parameter is random, biases and norms too: fresh ones are zero and one and would hide
    a weight that went astray. The last feed-forward dominates, so that outputs are varied."""
    torch.manual_seed(seed)
    model = build_model(config)
    parts: Any = model
    last = (parts.layers if isinstance(model, JointModel) else parts.decoder)[-1]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.normal_(1.0, 0.2)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
        down_proj = last.ffn.down_proj.weight
        down_proj.sub_(down_proj.mean(1, keepdim=True)).mul_(300.0)
        # One channel of the last norm is constant, and eos looks at it.
        norm_last = parts.decoder_norm if config.norm == "pre" else last.ffn_residual.norm
        norm_last.weight.mul_(2.0)
        norm_last.weight[0], norm_last.bias[0] = 0.0, 3.0
        model.output_weight[:, 0] = 0.0
        model.output_weight[EOS_ID, 0] = _END[config.architecture]
    return model.eval()


def sources(count: int, seed: int = 1) -> list[list[int]]:
    """Ids of various lengths that end with eos."""
    generator = random.Random(seed)
    return [
        [*generator.choices(range(4, VOCAB_SIZE), k=generator.randint(1, 17)), EOS_ID]
        for _ in range(count)
    ]
