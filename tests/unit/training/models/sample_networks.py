"""Models of every kind: what they read, what loops make of it, what they learn, their sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.unit.training.models import reference_blocks, reference_joint, reference_language
from tests.unit.training.tiny import TINY, TINY_JOINT, randomised
from tests.unit.training.tiny_language import TINY_LM, randomised_lm
from training.models import JointConfig, LanguageModelConfig, ModelConfig, Network, build_network
from training.tasks.loss import label_smoothed_loss

SOURCE, TARGET = [5, 9, 30, 7, 11, 3], [2, 8, 6, 33, 20]
LABELS = torch.tensor([[8, 6, 33, 20, 3]])
PAIRS: list[tuple[list[int], list[int]]] = [
    ([5, 9, 30, 7, 11], [8, 6]),
    ([4, 6], [33, 20, 21, 22, 23, 9, 4]),
    ([8], [12]),
]
BLOCKS_AND_NORMS = [(block, norm) for block in ("standard", "macaron") for norm in ("pre", "post")]
FAMILIES: list[ModelConfig] = [
    TINY,
    replace(TINY, norm="post", block="macaron"),
    TINY_JOINT,
    TINY_LM,
    replace(TINY_LM, norm="post", attention="cascade"),
]
DEEP: list[ModelConfig] = [
    replace(TINY, num_encoder_layers=4, num_decoder_layers=3),
    replace(TINY_JOINT, num_encoder_layers=4, num_decoder_layers=3),
    replace(TINY_LM, num_decoder_layers=4, norm="post"),
]
"""One of each family, with layers that can be left out."""


def name_of(config: ModelConfig) -> str:
    return f"{config.family}-{config.norm}"


def random_network(config: ModelConfig) -> Network:
    """In evaluation mode, all parameters random."""
    return randomised_lm(config) if isinstance(config, LanguageModelConfig) else randomised(config)


def inputs_of(config: ModelConfig) -> list[torch.Tensor]:
    """TARGET, and SOURCE before it where the model reads one."""
    sides = [TARGET] if isinstance(config, LanguageModelConfig) else [SOURCE, TARGET]
    return [torch.tensor([side]) for side in sides]


def expected_logits(model: Any) -> reference_blocks.Array:
    """Logits [T,V] of `inputs_of` by the reference of the model's kind."""
    if isinstance(model.config, LanguageModelConfig):
        return reference_language.logits(TARGET, model)
    if isinstance(model.config, JointConfig):
        return reference_joint.decode(SOURCE, TARGET, model)[0]
    return reference_blocks.logits(SOURCE, TARGET, model)


def losses_of_updates(config: ModelConfig) -> list[float]:
    """Of 30 updates by `inputs_of` and LABELS, each of which reaches every parameter."""
    torch.manual_seed(0)
    model = build_network(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    losses = []
    for _ in range(30):
        states = model.states(*inputs_of(config))
        loss = label_smoothed_loss(model, states, LABELS, 0.0)
        optimizer.zero_grad()
        (loss + (model.penalty or 0.0)).backward()
        reached = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        assert len(reached) == len(list(model.parameters()))
        assert torch.cat(reached).isfinite().all()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def parameters(config: ModelConfig) -> int:
    """How many a model has."""
    with torch.device("meta"):
        return sum(p.numel() for p in build_network(config).parameters())
