"""How self-attention knows positions, where the embedding does not tell them.

Shape letters: B rows, Q queries, C keys or cache slots, D model, H heads, E head, R distances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from training.models.config import ModelConfig
from training.models.operators import split_heads

_BASE = 10000.0


class RotaryPositions(nn.Module):
    """Queries and keys turned by angles that grow with the position, so that their product depends
    on the distance (Su et al. 2021, "RoFormer", equation 34; feature i of a head is turned with
    feature i + E/2, as in GPT-NeoX).

    The whole projection is turned before it is split and cached: a cache holds turned keys.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, projected_BQP: Tensor, positions_BQ: Tensor) -> Tensor:
        """Queries, keys and values side by side, [B,Q,3D], the first two turned; positions may be
        [1,Q]."""
        halves = projected_BQP.unflatten(-1, (3, self.num_heads, 2, -1))
        half = halves.shape[-1]
        index = torch.arange(half, dtype=torch.float32, device=projected_BQP.device)
        angle = positions_BQ.float().unsqueeze(-1) * torch.exp(index * (-math.log(_BASE) / half))
        # The values' angle is zero.
        turned = torch.tensor([1.0, 1.0, 0.0], device=projected_BQP.device)
        angle_BQ31F = angle[:, :, None, None] * turned[:, None, None]
        cosine, sine = (f(angle_BQ31F).to(projected_BQP.dtype) for f in (torch.cos, torch.sin))
        first, second = halves.unbind(-2)
        parts = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.stack(parts, -2).flatten(2)


class RelativePositions(nn.Module):
    """A vector for each distance from query to key, -k to k and clipped beyond, that is added to
    the key, and another one to the value; all heads share them (Shaw et al. 2018, equations 3 to
    5)."""

    def __init__(self, head_dim: int, most: int) -> None:
        """`most` is k."""
        super().__init__()
        self.most = most
        shape = (1, 2 * most + 1, head_dim)
        self.keys_1RE, self.values_1RE = (
            nn.Parameter(torch.empty(shape)),
            nn.Parameter(torch.empty(shape)),
        )
        for table in (self.keys_1RE, self.values_1RE):
            nn.init.xavier_uniform_(table[0])

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        distance_BQC: Tensor,
        *,
        num_heads: int,
        mask: Tensor | None,
        dropout: float,
    ) -> Tensor:
        """Attention as `operators.attention` describes it, where a key lies `distance` (key less
        query; [B,Q,C], or [1,Q,C] for all rows) from a query. Returns [B,Q,D]."""
        if query.dim() != 4:
            query, key, value = (split_heads(x, num_heads) for x in (query, key, value))
        query = query * query.shape[-1] ** -0.5
        place_BQC = distance_BQC.clamp(-self.most, self.most) + self.most
        scores = query @ key.transpose(-1, -2) + _by_query(
            query, self.keys_1RE[0, place_BQC].transpose(-1, -2)
        )
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores if mask is None else scores + mask
        probabilities = nn.functional.dropout(scores.softmax(-1).to(value.dtype), dropout)
        out = probabilities @ value + _by_query(probabilities, self.values_1RE[0, place_BQC])
        return out.transpose(1, 2).flatten(2)


def _by_query(x_BHQN: Tensor, matrix_BQNM: Tensor) -> Tensor:
    """[B,H,Q,M]: the product of all heads of a query with its own matrix."""
    if matrix_BQNM.shape[0] == 1:  # the same in all rows: not a copy for each
        rows = x_BHQN.permute(2, 0, 1, 3)
        product = rows.flatten(1, 2) @ matrix_BQNM[0]
        return product.unflatten(1, rows.shape[1:3]).permute(1, 2, 0, 3)
    return (x_BHQN.transpose(1, 2) @ matrix_BQNM).transpose(1, 2)


def make_positions(config: ModelConfig) -> RotaryPositions | RelativePositions | None:
    """What a self-attention of its own has of positions, by the configuration."""
    if config.positions == "rotary":
        return RotaryPositions(config.num_heads)
    if config.positions == "relative":
        width = config.model_dim // config.num_heads
        return RelativePositions(width, config.max_relative_distance)
    return None
