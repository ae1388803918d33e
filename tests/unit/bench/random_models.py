"""Random models that end their sentences, for comparisons of whole searches."""

from __future__ import annotations

import random

import torch

from serving.tokenizer import EOS_ID
from training.models import Transformer, TransformerConfig, build_model

VOCAB_SIZE = 200
END = 1.5
"""Higher ends sooner."""


def ending_model(norm: str = "pre", seed: int = 8) -> Transformer:
    """Every parameter is random, biases and norms too: fresh ones are zero and one and would hide
    a weight that went astray. The last feed-forward dominates, so that outputs are varied."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        norm=norm,
        model_dim=64,
        num_heads=4,
        ffn_dim=160,
        num_encoder_layers=2,
        num_decoder_layers=3,
        vocab_size=VOCAB_SIZE,
        dropout=0.0,
    )
    model = build_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.normal_(1.0, 0.2)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
        last = model.decoder[-1].ffn.down_proj.weight
        last.sub_(last.mean(1, keepdim=True)).mul_(300.0)
        # One channel of the last norm is constant, and eos looks at it.
        norm_last = model.decoder_norm if norm == "pre" else model.decoder[-1].ffn_residual.norm
        norm_last.weight.mul_(2.0)
        norm_last.weight[0], norm_last.bias[0] = 0.0, 3.0
        model.embedding.weight[:, 0] = 0.0
        model.embedding.weight[EOS_ID, 0] = END
    return model.eval()


def sources(count: int, seed: int = 1) -> list[list[int]]:
    """Ids of various lengths that end with eos."""
    generator = random.Random(seed)
    return [
        [*generator.choices(range(4, VOCAB_SIZE), k=generator.randint(1, 17)), EOS_ID]
        for _ in range(count)
    ]
