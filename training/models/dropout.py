"""Dropout of elements, with random bits that are cheap on a CPU, and of whole attention heads.

Shape letters: B rows, Q queries, D model, H heads, E head.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Inverted dropout (Srivastava et al. 2014) with one random byte per element.

    The probability is rounded to a multiple of 1/256, but not to 0 or 1. Drawing bytes instead of
    Bernoulli variables made a training step of the small presets a fifth faster
    (docs/background/decisions.md).
    """

    def __init__(self, probability: float, shared_axes: tuple[int, ...] = ()) -> None:
        """`shared_axes` are the axes along which all elements share their noise."""
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


class WeightDropout(NamedTuple):
    """Dropout of attention probabilities."""

    rate: float = 0.0
    rows_sharing: int = 1
    """Number of successive rows of a batch that drop the same ones."""


KEEP_ALL = WeightDropout()


class HeadDropout(nn.Module):
    """DropHead: in training each row of a batch loses some attention heads, and the others are
    scaled up (Zhou et al. 2020, "Scheduled DropHead").

    The scale is H over the number of heads left, as in the authors' code. There a row that loses
    all its heads is a division by zero; here one head stays, whichever.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.rate = 0.0
        """Probability of dropping a head; training sets it before each update."""

    def forward(self, x_BQD: Tensor) -> Tensor:
        """The heads' outputs [B,Q,D] side by side, before their projection."""
        if not self.training or self.rate == 0.0:
            return x_BQD
        height_BH = torch.rand(len(x_BQD), self.num_heads, device=x_BQD.device)
        stays_BH = (height_BH >= self.rate) | (height_BH == height_BH.amax(1, keepdim=True))
        factor_BH = stays_BH * (self.num_heads / stays_BH.sum(1, keepdim=True))
        x_BQHE = x_BQD.unflatten(-1, (self.num_heads, -1))
        return (x_BQHE * factor_BH[:, None, :, None].to(x_BQD.dtype)).flatten(2)
