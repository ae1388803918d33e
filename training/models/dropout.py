"""Dropout whose random bits cost little on a CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Inverted dropout (Srivastava et al. 2014) with one random byte an element.

    The probability is rounded to a multiple of 1/256, but not to 0 or 1. Drawing bytes instead of
    Bernoulli variables made a training step of the small presets a fifth faster
    (docs/decisions.md).
    """

    def __init__(self, probability: float, shared_axes: tuple[int, ...] = ()) -> None:
        """`shared_axes` are those along which all elements share their noise."""
        super().__init__()
        self.shared_axes = shared_axes
        self.threshold = min(255, max(1, round(probability * 256))) if probability else 0

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """`scale` times the input, in training with elements zeroed and the rest scaled up."""
        if not self.training or self.threshold == 0:
            return x if scale == 1.0 else scale * x
        shape = [1 if axis in self.shared_axes else size for axis, size in enumerate(x.shape)]
        count = math.prod(shape)
        words = torch.empty((count + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None)
        bytes_ = words.view(torch.uint8)[:count].view(shape)
        factor = scale * 256 / (256 - self.threshold)
        return x * (bytes_ >= self.threshold).to(x.dtype).mul_(factor)
