"""The branches of the Weighted Transformer: a feed-forward of its own for each attention head.

Ahmed et al. 2017, "Weighted Transformer Network for Machine Translation". Shape letters: B rows,
Q queries, D model, E head, M branches, which are the heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.configs.common import ModelConfig
from training.models.dropout import Dropout
from training.models.sublayers.attention import init_linear
from training.models.sublayers.feed_forward import FeedForward


class Branches(nn.Module):
    """A feed-forward for each attention head, in place of attention's output projection and the
    feed-forward behind it: sum_i alpha_i FFN_i(kappa_i head_i W_i) (section 3, equations 5 to 7).

    Each feed-forward has the inner size ffn_dim / M. kappa and alpha are each a softmax of learnt
    numbers: never below zero, with the sum 1, and all equal at first.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        count = config.num_heads
        width = config.model_dim // count
        self.projections = nn.ModuleList(nn.Linear(width, config.model_dim) for _ in range(count))
        self.ffns = nn.ModuleList(
            FeedForward(
                config.model_dim,
                config.ffn_dim // count,
                Dropout(config.activation_dropout),
                config.activation,
                config.ffn_hidden_layers,
            )
            for _ in range(count)
        )
        init_linear(*self.projections)
        self.kappa_logits = nn.Parameter(torch.zeros(count))
        self.alpha_logits = nn.Parameter(torch.zeros(count))
        self._settled: list[list[float]] | None = None

    def forward(self, x_BQD: Tensor) -> Tensor:
        """The heads' outputs [B,Q,D] side by side to [B,Q,D]."""
        kappas, alphas = self._settled or (
            self.kappa_logits.softmax(0),
            self.alpha_logits.softmax(0),
        )
        heads = x_BQD.chunk(len(self.ffns), dim=-1)
        parts = [
            ffn(project(head) * kappa) * alpha
            for head, project, ffn, kappa, alpha in zip(
                heads, self.projections, self.ffns, kappas, alphas, strict=True
            )
        ]
        return torch.stack(parts).sum(0)

    def settle(self) -> None:
        """Fix kappa and alpha at their present values, for all later calls."""
        logits = (self.kappa_logits, self.alpha_logits)
        self._settled = [each.detach().softmax(0).tolist() for each in logits]
