"""The feed-forward network, which treats each position alone."""

from __future__ import annotations

from torch import Tensor, nn

from training.models.attention import init_linear
from training.models.dropout import Dropout


class FeedForward(nn.Module):
    """Linear, ReLU, Linear (Vaswani et al. 2017, equation 2)."""

    def __init__(self, model_dim: int, ffn_dim: int, dropout: Dropout) -> None:
        super().__init__()
        self.up_proj = nn.Linear(model_dim, ffn_dim)
        self.down_proj = nn.Linear(ffn_dim, model_dim)
        self.dropout = dropout
        init_linear(self.up_proj, self.down_proj)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Widen the last axis to `ffn_dim` and bring it back; all others are kept."""
        return self.down_proj(self.dropout(self.up_proj(x_BTD).relu()))
