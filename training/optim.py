"""Adam with decoupled weight decay or SGD, and learning-rate schedules as functions of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from training.config import OptimConfig


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """One optimiser over all parameters: AdamW (Loshchilov and Hutter 2019; weight decay 0 is plain
    Adam), or SGD without momentum."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=config.peak_lr, weight_decay=config.weight_decay, fused=True
        )
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.peak_lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )


def learning_rate(step: int, config: OptimConfig, max_steps: int) -> float:
    """The rate of update `step` (from 1): linear warm-up, then the configured decay.

    `inverse_sqrt` is Vaswani et al. 2017, equation 3, written with its peak; `linear` and `cosine`
    (Loshchilov and Hutter 2017, equation 5, without restarts) end at `final_lr` in `max_steps`;
    `constant` stays at its peak.
    """
    if step < config.warmup_steps:
        return config.peak_lr * step / config.warmup_steps
    if config.schedule == "constant":
        return config.peak_lr
    if config.schedule == "inverse_sqrt":
        return config.peak_lr * math.sqrt(config.warmup_steps / step)
    done = min(1.0, (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps))
    shape = 1.0 - done if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.final_lr + (config.peak_lr - config.final_lr) * shape
