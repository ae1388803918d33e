"""A recurrent cell in place of the decoder's self-attention.

Shape letters: B sentences, Q queries, D model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.configs.transformer import TransformerConfig
from training.models.context import CacheContext, StepNeeds
from training.models.sublayers.attention import init_linear


class Ssru(nn.Module):
    """The simpler simple recurrent unit (Kim et al. 2019, "From Research to Production and Back",
    section 3.1): f = sigmoid(W_f x + b_f), c = f * c_before + (1 - f) * W x, output relu(c)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dim = config.model_dim
        self.needs = StepNeeds(states=(self.dim,), ancestors=1, recurrent=True)
        self.in_proj = nn.Linear(self.dim, 2 * self.dim, bias=False)
        """The rows of W_f, then those of W."""
        self.forget_bias = nn.Parameter(torch.zeros(self.dim))
        init_linear(self.in_proj)

    def decode(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """[B,Q,D] to [B,Q,D], from the state of each position's parent."""
        return torch.relu(context.recur(self.cell, self.in_proj(x_BQD), self.dim))

    def cell(self, projected: Tensor, parent_BQD: Tensor) -> Tensor:
        """States c [B,Q,D] from the output of `in_proj`, [B,Q,2D], and the states before them."""
        gate, new = projected.chunk(2, dim=-1)
        kept = torch.sigmoid(gate + self.forget_bias)
        return kept * parent_BQD + (1 - kept) * new
