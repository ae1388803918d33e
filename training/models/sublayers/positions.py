"""Positions that self-attention computes itself, in place of positions in the embedding.

Shape letters: B rows, Q queries, C keys or cache slots, D model, H heads, E head, R distances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from training.models.configs.bert import BertConfig
from training.models.configs.common import ModelConfig
from training.models.configs.language_model import LanguageModelConfig
from training.models.operators import join_heads, split_heads

_WHOLE_VECTORS = 16
"""Angles are padded to a multiple of this number. ONNX Runtime computes the sines after the last
whole vector in another way, and which rows these are depends on the batch."""


class RotaryPositions(nn.Module):
    """Rotates queries and keys by angles that grow with the position, so that their product depends
    on the distance (Su et al. 2021, "RoFormer", equation 34; feature i of a head is rotated with
    feature i + E/2, as in GPT-NeoX).

    The whole projection is rotated before it is split and cached, so a cache holds rotated keys.
    """

    def __init__(
        self,
        num_heads: int,
        kv_heads: int | None = None,
        base: float = 10000.0,
        slower_F: Tensor | None = None,
        width: int = 0,
    ) -> None:
        """The first feature turns once in 2 pi positions, the last once in nearly 2 pi `base`, or
        more slowly by the factors `slower_F`. `kv_heads` defaults to `num_heads`. Only the first
        `width` features of a head are turned; 0 stands for all."""
        super().__init__()
        self.width = width
        self.num_heads, self.kv_heads, self.base = num_heads, kv_heads or num_heads, base
        if slower_F is not None:
            rest = -len(slower_F) % _WHOLE_VECTORS
            slower_F = torch.cat([slower_F, torch.ones(rest)])
        self.register_buffer("slower_F", slower_F, persistent=False)

    def forward(self, projected_BQP: Tensor, positions_BQ: Tensor) -> Tensor:
        """Turn the first two of the heads of queries, keys and values, which are side by side in
        [B,Q,P]; positions may be [1,Q]."""
        heads, turned = self.num_heads + 2 * self.kv_heads, self.num_heads + self.kv_heads
        width = projected_BQP.shape[-1] // heads
        sizes = [turned * width, self.kv_heads * width]
        query_key_BQP, value_BQP = projected_BQP.split(sizes, -1)
        half = (self.width or width) // 2
        count = -(-half // _WHOLE_VECTORS) * _WHOLE_VECTORS
        index = torch.arange(count, dtype=torch.float32, device=projected_BQP.device)
        frequency = torch.exp(index * (-math.log(self.base) / half))
        if self.slower_F is not None:
            assert isinstance(self.slower_F, Tensor)
            frequency = frequency / self.slower_F
        angle_BQ1F = (positions_BQ.float().unsqueeze(-1) * frequency).unsqueeze(2)
        cosine, sine = (
            function(angle_BQ1F)[..., :half].to(projected_BQP.dtype)
            for function in (torch.cos, torch.sin)
        )
        if 2 * half < width:
            by_head = query_key_BQP.unflatten(-1, (turned, width))
            first, second, rest = by_head.split([half, half, width - 2 * half], -1)
            in_part = [first * cosine - second * sine, second * cosine + first * sine, rest]
            return torch.cat([torch.cat(in_part, -1).flatten(2), value_BQP], -1)
        first, second = query_key_BQP.unflatten(-1, (turned, 2, half)).unbind(-2)
        parts = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.cat([torch.stack(parts, -2).flatten(2), value_BQP], -1)


def rotary_slowing(config: LanguageModelConfig) -> Tensor | None:
    """Factors by which the angles [E/2] of a head turn more slowly, so that a model reads more
    positions than it was trained on; None if no angle changes.

    `linear` divides all angles by one factor (Chen et al. 2023). `llama3` fully divides those that
    turn at most `rotary_low_factor` times in `rotary_trained_length` positions, leaves those that
    turn at least `rotary_high_factor` times, and divides those between the two in part (the code of
    Llama 3.1). `listed` divides each angle by its own number of `rotary_factors`.
    """
    if config.rotary_scaling == "none":
        return None
    half = config.rotary_width // 2
    if config.rotary_scaling == "listed":
        return torch.tensor(config.rotary_factors)
    if config.rotary_scaling == "linear":
        return torch.full((half,), config.rotary_factor)
    frequency_F = torch.exp(torch.arange(half) * (-math.log(config.rotary_base) / half))
    turns_F = config.rotary_trained_length * frequency_F / (2 * math.pi)
    low, high = config.rotary_low_factor, config.rotary_high_factor
    kept_F = ((turns_F - low) / (high - low)).clamp(0.0, 1.0)
    return 1.0 / (kept_F + (1.0 - kept_F) / config.rotary_factor)


class RelativePositions(nn.Module):
    """A vector for each distance from query to key, -k to k and clipped beyond, that is added to
    the key, and another one to the value; all heads share them (Shaw et al. 2018, equations 3 to
    5)."""

    def __init__(self, head_dim: int, most: int) -> None:
        """`most` is the largest distance k."""
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
        """Attention as `operators.attention` describes it, with `distance` from query to key (key
        minus query; [B,Q,C], or [1,Q,C] for all rows). Returns [B,Q,D]."""
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
        return join_heads(
            probabilities @ value + _by_query(probabilities, self.values_1RE[0, place_BQC])
        )


def _by_query(x_BHQN: Tensor, matrix_BQNM: Tensor) -> Tensor:
    """[B,H,Q,M]: the product of all heads of a query with its own matrix."""
    if matrix_BQNM.shape[0] == 1:  # the same in all rows: not a copy for each
        rows = x_BHQN.permute(2, 0, 1, 3)
        product = rows.flatten(1, 2) @ matrix_BQNM[0]
        return product.unflatten(1, rows.shape[1:3]).permute(1, 2, 0, 3)
    return (x_BHQN.transpose(1, 2) @ matrix_BQNM).transpose(1, 2)


class RelativeBias(nn.Module):
    """A number for each head and each bucket of distances, which is added to a score (Raffel et al.
    2020, section 2.1; the buckets are those of their code).

    The first half of the buckets are single distances. The others are ranges that grow by one
    factor up to `max_distance`; the last one has all larger distances. If positions ahead are seen
    too, they have the second half of all buckets, divided in the same way.
    """

    def __init__(
        self, num_heads: int, num_buckets: int, max_distance: int, *, sees_ahead: bool
    ) -> None:
        super().__init__()
        self.most = max_distance
        # Not [R,H]: such a table would be an embedding, which int8 rounds.
        self.weight_1RH = nn.Parameter(torch.zeros(1, num_buckets, num_heads))
        buckets_R = _buckets(num_buckets, max_distance, sees_ahead=sees_ahead)
        self.register_buffer("buckets_R", buckets_R, persistent=False)

    def forward(self, distance_BQC: Tensor) -> Tensor:
        """The biases [B,H,Q,C] for the `distance` from query to key (key minus query)."""
        place_BQC = distance_BQC.clamp(-self.most, self.most) + self.most
        assert isinstance(self.buckets_R, Tensor)
        bias_BQCH = self.weight_1RH[0, self.buckets_R][place_BQC]
        return bias_BQCH.permute(0, 3, 1, 2)


def _buckets(count: int, most: int, *, sees_ahead: bool) -> Tensor:
    """The number of the bucket of each distance from `-most` to `most`."""
    distance_R = torch.arange(-most, most + 1)
    ahead_R = (distance_R > 0) & sees_ahead
    if sees_ahead:
        count //= 2
    else:
        distance_R = distance_R.clamp(max=0)
    single, length_R = count // 2, distance_R.abs()
    # In fp32, as in the authors' code: it decides where a range ends.
    growth_R = torch.log(length_R.clamp(min=1).float() / single) / math.log(most / single)
    range_R = (single + (growth_R * (count - single)).long()).clamp(max=count - 1)
    return torch.where(length_R < single, length_R, range_R) + ahead_R * count


def make_positions(config: ModelConfig) -> RotaryPositions | RelativePositions | None:
    """The module that adds positions to one self-attention, as configured; None if it has none of
    its own."""
    if config.positions == "rotary":
        if isinstance(config, LanguageModelConfig):
            return RotaryPositions(
                config.num_heads,
                config.kv_heads,
                config.rotary_base,
                rotary_slowing(config),
                config.rotary_dim,
            )
        base = config.rotary_base if isinstance(config, BertConfig) else 10000.0
        return RotaryPositions(config.num_heads, base=base)
    if config.positions == "relative":
        return RelativePositions(config.head_width, config.max_relative_distance)
    return None
