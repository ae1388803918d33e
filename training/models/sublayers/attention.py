"""Multi-head attention, with a prefix-tree cache for decoding.

Shape letters: B sentences, Q queries, C cache slots or keys, S source positions, D model, H heads,
E head.

The same modules train and export. A cached call appends its Q new rows at `write_index` of each
sentence and attends under an additive mask over all slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.models.context import AttentionContext, CacheContext, KeyValue, StepNeeds
from training.models.dropout import KEEP_ALL, HeadDropout, WeightDropout
from training.models.operators import (
    attention,
    biased_attention,
    capped_attention,
    reshape,
    split_heads,
)
from training.models.sublayers.positions import RelativePositions, RotaryPositions


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Texts packed one after another in one row [1,M,D], so that only attention sees padding."""

    slots_BS: Tensor
    """Place in the row of each text's tokens; any place after its end, which is hidden."""
    mask_BS: Tensor
    """Additive attention mask: 0 at a text's tokens, -inf after its end."""
    rows_M: Tensor
    """Place of each token in [B*S]."""
    positions_1M: Tensor
    """Position of each token in its own text."""
    scores: Tensor | None = None
    """Mask [B,1 or H,S,S] added to scores, if `mask_BS` is not enough for all."""

    def unpack(self, x_1MD: Tensor) -> Tensor:
        """[1,M,D] to [B,S,D]; values after a text's end are arbitrary."""
        flat = reshape(x_1MD, x_1MD.shape[1:], (-1, x_1MD.shape[2]))
        return nn.functional.embedding(self.slots_BS, flat)

    def unpack_parts(self, x_1MP: Tensor, parts: int) -> list[Tensor]:
        """`unpack` of each of P equal parts of the last axis: [1,M,P*D] to P times [B,S,D], without
        copying the whole."""
        ids, width = x_1MP.shape[1], x_1MP.shape[2] // parts
        flat = reshape(x_1MP, (ids * parts, width), (-1, width))
        first_BS = self.slots_BS * parts
        return [nn.functional.embedding(first_BS + part, flat) for part in range(parts)]

    def pack(self, x_BSD: Tensor) -> Tensor:
        """[B,S,D] to [1,M,D]."""
        rows, width = x_BSD.shape[0] * x_BSD.shape[1], x_BSD.shape[2]
        flat = reshape(x_BSD, (rows, width), (-1, width))
        return nn.functional.embedding(self.rows_M[None], flat)


def with_cap(cap: float) -> Callable[..., Tensor]:
    """`attention`, with soft-capped scores if the cap is not 0."""
    if not cap:
        return attention

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        num_heads: int,
        mask: Tensor | None,
        causal: bool = False,
        dropout: WeightDropout = KEEP_ALL,
        scales_queries: bool = True,
    ) -> Tensor:
        del scales_queries  # scores are scaled before they are capped
        return capped_attention(
            query,
            key,
            value,
            num_heads=num_heads,
            mask=mask,
            causal=causal,
            dropout=dropout,
            cap=cap,
        )

    return attend


class SelfAttention(nn.Module):
    """Self-attention with one fused input projection, initialised by `init_linear`.

    The last axis P of the projection holds the heads of queries, then of keys, then of values.
    There may be fewer heads of keys and values, each shared by several of queries (Ainslie et al.
    2023).
    """

    needs = StepNeeds(attentions=1)

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        dropout: float,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        positions: RotaryPositions | RelativePositions | None = None,
        is_biased: bool = False,
    ) -> None:
        """`positions` adds positions inside attention, if neither the embedding nor a mask does.
        With `is_biased` masks may differ between heads. `kv_heads` defaults to `num_heads`, and
        `head_dim` to the model's width over `num_heads`."""
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.head_counts = [num_heads, *[kv_heads or num_heads] * 2]
        width = head_dim or model_dim // num_heads
        self.in_proj = nn.Linear(model_dim, sum(self.head_counts) * width, bias=bias)
        self.out_proj: nn.Module = nn.Linear(num_heads * width, model_dim, bias=bias)
        self.head_dropout = HeadDropout(num_heads)
        self.rotary = positions if isinstance(positions, RotaryPositions) else None
        self.relative = positions if isinstance(positions, RelativePositions) else None
        self._attention: Callable[..., Tensor] = biased_attention if is_biased else attention
        if self.relative is not None or is_biased:
            self.needs = StepNeeds(attentions=1, slot_positions=True)
        init_linear(self.in_proj, self.out_proj)

    def cap_scores(self, cap: float) -> None:
        """Cap scores softly at `cap` from now on; 0 removes the cap."""
        self._attention = with_cap(cap)

    def forward(
        self, x_BQD: Tensor, mask: Tensor | Packing | None = None, rows_sharing_dropout: int = 1
    ) -> Tensor:
        """Bidirectional attention of an encoder under an additive mask [B,1,1 or S,S], with biases
        [B,H,S,S], or within each packed text.

        Each `rows_sharing_dropout` successive rows of B drop the same probabilities.
        """
        if isinstance(mask, Packing):
            return self._attend_packed(x_BQD, mask)
        positions_1Q = _in_order(x_BQD)
        query, key, value = self._split(self._project(x_BQD, positions_1Q))
        return self._attend(
            query,
            KeyValue(key, value),
            mask,
            self._distance(positions_1Q, positions_1Q),
            rows_sharing_dropout=rows_sharing_dropout,
        )

    def _attend_packed(self, x_1MD: Tensor, packing: Packing) -> Tensor:
        projected_1MP = self._project(x_1MD, packing.positions_1M)
        query, key, value = packing.unpack_parts(projected_1MP, 3)
        mask = packing.scores
        if mask is None:
            # Each query has a row of the mask: graphs have no other form of it.
            mask = packing.mask_BS[:, None, None, :].expand(-1, -1, query.shape[1], -1)
        positions_1S = _in_order(query)
        distance = self._distance(positions_1S, positions_1S)
        out_BSD = self._weigh(query, KeyValue(key, value), mask, distance, packed=True)
        return self.out_proj(packing.pack(self.head_dropout(out_BSD)))

    def decode(self, x_BQD: Tensor, context: CacheContext, rows_sharing_dropout: int = 1) -> Tensor:
        """Causal attention of a decoder; appends to its cache if there is one."""
        positions_BQ = _in_order(x_BQD) if context.positions is None else context.positions
        projected = self._project(x_BQD, positions_BQ)
        if context.cached and context.key_values[0].keys.dim() == 4:
            by_head = split_heads(projected, sum(self.head_counts))
            query, key, value = _split_in(by_head, self.head_counts, 1)
        else:
            query, key, value = self._split(projected)
        if context.cached:
            cache = context.append_key_value(key, value)
            distance = self._distance(positions_BQ, context.slot_positions)
            return self._attend(query, cache, context.visible, distance)
        return self._attend(
            query,
            KeyValue(key, value),
            context.visible,
            self._distance(positions_BQ, positions_BQ),
            causal=context.visible is None,
            rows_sharing_dropout=rows_sharing_dropout,
        )

    def _project(self, x_BQD: Tensor, positions_BQ: Tensor) -> Tensor:
        """Queries, keys and values side by side, [B,Q,P]."""
        projected = self.in_proj(x_BQD)
        return projected if self.rotary is None else self.rotary(projected, positions_BQ)

    def _split(self, projected_BQP: Tensor) -> list[Tensor]:
        """Queries [B,Q,D], keys and values; the last two are as wide as their heads."""
        width = projected_BQP.shape[-1] // sum(self.head_counts)
        return _split_in(projected_BQP, [heads * width for heads in self.head_counts], -1)

    def _distance(self, positions_BQ: Tensor, slots_BC: Tensor | None) -> Tensor | None:
        """Distance of each key from each query (key minus query), [B,Q,C]; None if the positions do
        not use it."""
        if self.relative is None:
            return None
        assert slots_BC is not None
        return slots_BC[:, None, :] - positions_BQ[:, :, None]

    def _attend(
        self,
        query: Tensor,
        key_value: KeyValue,
        mask: Tensor | None,
        distance_BQC: Tensor | None,
        *,
        causal: bool = False,
        rows_sharing_dropout: int = 1,
    ) -> Tensor:
        out_BQD = self._weigh(
            query,
            key_value,
            mask,
            distance_BQC,
            causal=causal,
            rows_sharing_dropout=rows_sharing_dropout,
        )
        return self.out_proj(self.head_dropout(out_BQD))

    def _weigh(
        self,
        query: Tensor,
        key_value: KeyValue,
        mask: Tensor | None,
        distance_BQC: Tensor | None,
        *,
        causal: bool = False,
        packed: bool = False,
        rows_sharing_dropout: int = 1,
    ) -> Tensor:
        """The weighted values of all heads [B,Q,D]."""
        dropout = self.dropout if self.training else 0.0
        if self.relative is None:
            return self._attention(
                query,
                key_value.keys,
                key_value.values,
                num_heads=self.num_heads,
                mask=mask,
                causal=causal,
                dropout=WeightDropout(dropout, rows_sharing_dropout),
                # Unpacking keeps the factor out of the weights, turned or not, and the
                # kernel that unpacks them itself takes it.
                scales_queries=packed or self.rotary is None,
            )
        assert distance_BQC is not None
        if causal:
            mask = torch.zeros_like(distance_BQC, dtype=torch.float32)
            mask = mask.masked_fill(distance_BQC > 0, -torch.inf)[:, None]
        return self.relative(
            query,
            key_value.keys,
            key_value.values,
            distance_BQC,
            num_heads=self.num_heads,
            mask=mask,
            dropout=dropout,
        )


def _split_in(x: Tensor, sizes: list[int], dim: int) -> list[Tensor]:
    """Parts with these sizes along an axis; equal parts by `chunk`, which exports by their
    number."""
    return list(x.chunk(len(sizes), dim) if len(set(sizes)) == 1 else x.split(sizes, dim))


def _in_order(x_BQD: Tensor) -> Tensor:
    """Positions [1,Q] of rows, from their beginning."""
    return torch.arange(x_BQD.shape[1], device=x_BQD.device)[None]


class SourceAttention(nn.Module):
    """Attention over the encoder's output; keys and values are projected once per sentence."""

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        dropout: float,
        *,
        source_dim: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        """`source_dim`, the width of the encoder's output, defaults to the model's, and `head_dim`
        to the model's over the number of heads."""
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        width = num_heads * (head_dim or model_dim // num_heads)
        self.query_proj = nn.Linear(model_dim, width, bias=bias)
        self.key_value_proj = nn.Linear(source_dim or model_dim, 2 * width, bias=bias)
        self.out_proj: nn.Module = nn.Linear(width, model_dim, bias=bias)
        self.head_dropout = HeadDropout(num_heads)
        self._attention: Callable[..., Tensor] = attention
        init_linear(self.query_proj, self.key_value_proj, self.out_proj)

    def cap_scores(self, cap: float) -> None:
        """Cap the scores of attention, as `SelfAttention.cap_scores` does."""
        self._attention = with_cap(cap)

    def project(self, memory_BSD: Tensor) -> KeyValue:
        """Keys and values [B,S,D] of an encoder output."""
        keys, values = self.key_value_proj(memory_BSD).chunk(2, dim=-1)
        return KeyValue(keys, values)

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        """Attend from [B,Q,D] to the source; the K beams of a sentence are queries in one row."""
        context.source_query = self.query_proj(x_BQD)
        out_BQD = self._attention(
            context.source_query,
            context.source.keys,
            context.source.values,
            num_heads=self.num_heads,
            mask=context.source_mask,
            dropout=WeightDropout(self.dropout if self.training else 0.0),
        )
        return self.out_proj(self.head_dropout(out_BQD))


def init_linear(*layers: nn.Module) -> None:
    """Xavier-uniform weights and zero biases, as in fairseq."""
    for layer in layers:
        assert isinstance(layer, nn.Linear)
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@torch.no_grad()
def small_init(model: nn.Module) -> None:
    """Draw all attention projections of a model from N(0, sqrt(2 / (5 D))): the spread that
    Xavier's rule gives a feed-forward of 4 D (SmallInit; Nguyen and Salazar 2019)."""
    for module in model.modules():
        if isinstance(module, SelfAttention | SourceAttention):
            for layer in module.children():
                if isinstance(layer, nn.Linear):
                    layer.weight.normal_(0.0, math.sqrt(2 / (5 * layer.in_features)))
