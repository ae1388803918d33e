"""Adam with decoupled weight decay or SGD, and learning-rate schedules as functions of the step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from training.models import ModelConfig
from training.models.sublayers.branches import Branches
from training.recipe.config import OptimConfig


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """The optimiser over all parameters: AdamW (Loshchilov and Hutter 2019; Adam if the weight
    decay is 0), or SGD without momentum. The weights of a model's branches form a separate
    group."""
    branches = [
        parameter
        for module in model.modules()
        if isinstance(module, Branches)
        for parameter in (module.kappa_logits, module.alpha_logits)
    ]
    listed = {id(parameter) for parameter in branches}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if id(p) not in listed]}
    ]
    if branches:
        groups.append({"params": branches, "branches": True})
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=config.peak_lr, weight_decay=config.weight_decay, fused=True
        )
    return torch.optim.AdamW(
        groups,
        lr=config.peak_lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )


def set_rates(
    optimizer: torch.optim.Optimizer, step: int, config: OptimConfig, max_steps: int
) -> float:
    """Set the learning rates of update `step`, counted from 1; returns the common rate. Weights of
    branches have their own warm-up and are frozen in the last updates (Ahmed et al. 2017, section
    4)."""
    rate = learning_rate(step, config, max_steps)
    own = replace(config, warmup_steps=config.branch_warmup_steps or config.warmup_steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
        if group.get("branches"):
            frozen = step > max_steps - config.branch_frozen_steps
            group["lr"] = 0.0 if frozen else learning_rate(step, own, max_steps)
    return rate


def head_dropout_rate(step: int, model: ModelConfig, optim: OptimConfig, max_steps: int) -> float:
    """The DropHead rate of update `step`, counted from 1: constant, or falling over the warm-up and
    rising over the remaining updates (Zhou et al. 2020, section 3.3)."""
    if model.head_dropout_schedule == "constant":
        return model.head_dropout
    warmup = optim.warmup_steps
    if step <= warmup:
        return model.head_dropout * (1.0 - step / warmup)
    return model.head_dropout * min(1.0, (step - warmup) / max(1, max_steps - warmup))


def learning_rate(step: int, config: OptimConfig, max_steps: int) -> float:
    """The learning rate of update `step`, counted from 1: linear warm-up, then the configured
    decay.

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
