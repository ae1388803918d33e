"""Multi-head attention, with a prefix-tree cache for decoding.

Shape letters: B sentences, Q queries, C cache slots or keys, S source positions, D model, H heads,
E head.

The same modules train and export. A cached call appends its Q new rows at `write_index` of each
sentence and attends under an additive mask over all slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.models.operators import attention, reshape, split_heads, tensor_scatter


@dataclass
class KeyValue:
    """Keys and values of one attention layer, both [B, C or S, D] or, by head, [B,H,C,E]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Texts that lie behind one another in one row [1,M,D], so that only attention sees padding."""

    slots_BS: Tensor
    """The place in the row of each text's tokens; behind its end any place, which is hidden."""
    mask_BS: Tensor
    """0 at a text's tokens, -inf behind its end."""
    rows_M: Tensor
    """The place of each token in [B*S]."""

    def unpack(self, x_1MD: Tensor) -> Tensor:
        """[1,M,D] to [B,S,D], in which what is behind a text's end has no meaning."""
        flat = reshape(x_1MD, x_1MD.shape[1:], (-1, x_1MD.shape[2]))
        return nn.functional.embedding(self.slots_BS, flat)

    def unpack_parts(self, x_1MP: Tensor, parts: int) -> list[Tensor]:
        """`unpack` of each of the equal parts that the last axis falls into: [1,M,P*D] to P times
        [B,S,D], without a copy of the whole."""
        ids, width = x_1MP.shape[1], x_1MP.shape[2] // parts
        flat = reshape(x_1MP, (ids * parts, width), (-1, width))
        first_BS = self.slots_BS * parts
        return [nn.functional.embedding(first_BS + part, flat) for part in range(parts)]

    def pack(self, x_BSD: Tensor) -> Tensor:
        """[B,S,D] to [1,M,D]."""
        rows, width = x_BSD.shape[0] * x_BSD.shape[1], x_BSD.shape[2]
        flat = reshape(x_BSD, (rows, width), (-1, width))
        return nn.functional.embedding(self.rows_M[None], flat)


@dataclass(kw_only=True)
class CacheContext:
    """What causal self-attention sees in one call.

    Training leaves all of it empty and attends causally. Decoding passes the cache, `visible`
    [B,1,Q,C] (0 or -inf) and `write_index` [B]; after the call `cache` holds the appended cache.
    """

    visible: Tensor | None = None
    cache: KeyValue | None = None
    write_index: Tensor | None = None


@dataclass(kw_only=True)
class AttentionContext(CacheContext):
    """What the attentions of one decoder layer of a Transformer see in one call."""

    source: KeyValue
    source_mask: Tensor | None  # [B,1,Q or 1,S], 0 or -inf
    source_query: Tensor | None = None  # [B,Q,D], left by the source attention for alignments


def cache_tensors(contexts: Sequence[CacheContext]) -> list[Tensor]:
    """[key, value] of each layer's appended cache."""
    tensors = []
    for context in contexts:
        assert context.cache is not None
        tensors += [context.cache.keys, context.cache.values]
    return tensors


class SelfAttention(nn.Module):
    """Self-attention with one fused input projection, initialised by `init_linear`."""

    def __init__(
        self, model_dim: int, num_heads: int, dropout: float, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.in_proj = nn.Linear(model_dim, 3 * model_dim, bias=bias)
        self.out_proj = nn.Linear(model_dim, model_dim, bias=bias)
        init_linear(self.in_proj, self.out_proj)

    def forward(
        self, x_BQD: Tensor, mask: Tensor | Packing | None = None, rows_sharing_dropout: int = 1
    ) -> Tensor:
        """Bidirectional attention of an encoder under an additive mask [B,1,1 or S,S], or within
        each of the texts that are packed.

        Each `rows_sharing_dropout` successive rows of B drop the same probabilities.
        """
        if isinstance(mask, Packing):
            return self._attend_packed(x_BQD, mask)
        query, key, value = self.in_proj(x_BQD).chunk(3, dim=-1)
        return self._attend(
            query, KeyValue(key, value), mask, rows_sharing_dropout=rows_sharing_dropout
        )

    def _attend_packed(self, x_1MD: Tensor, packing: Packing) -> Tensor:
        query, key, value = packing.unpack_parts(self.in_proj(x_1MD), 3)
        # Each query has a row of the mask: graphs have no other form of it.
        mask = packing.mask_BS[:, None, None, :].expand(-1, -1, query.shape[1], -1)
        attended = self._weigh(query, KeyValue(key, value), mask)
        return self.out_proj(packing.pack(attended))

    def decode(self, x_BQD: Tensor, context: CacheContext, rows_sharing_dropout: int = 1) -> Tensor:
        """Causal attention of a decoder; appends to `context.cache` where there is one."""
        projected = self.in_proj(x_BQD)
        if context.cache is not None and context.cache.keys.dim() == 4:
            query, key, value = split_heads(projected, 3 * self.num_heads).chunk(3, dim=1)
        else:
            query, key, value = projected.chunk(3, dim=-1)
        if context.cache is None:
            return self._attend(
                query,
                KeyValue(key, value),
                None,
                causal=True,
                rows_sharing_dropout=rows_sharing_dropout,
            )
        assert context.write_index is not None
        context.cache = KeyValue(
            tensor_scatter(context.cache.keys, key, context.write_index),
            tensor_scatter(context.cache.values, value, context.write_index),
        )
        return self._attend(query, context.cache, context.visible)

    def _attend(
        self,
        query: Tensor,
        key_value: KeyValue,
        mask: Tensor | None,
        *,
        causal: bool = False,
        rows_sharing_dropout: int = 1,
    ) -> Tensor:
        return self.out_proj(
            self._weigh(
                query,
                key_value,
                mask,
                causal=causal,
                rows_sharing_dropout=rows_sharing_dropout,
            )
        )

    def _weigh(
        self,
        query: Tensor,
        key_value: KeyValue,
        mask: Tensor | None,
        *,
        causal: bool = False,
        rows_sharing_dropout: int = 1,
    ) -> Tensor:
        """The weighted values, before the output projection."""
        return attention(
            query,
            key_value.keys,
            key_value.values,
            num_heads=self.num_heads,
            mask=mask,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            rows_sharing_dropout=rows_sharing_dropout,
        )


class SourceAttention(nn.Module):
    """Attention over the encoder's output; keys and values are projected once a sentence."""

    def __init__(self, model_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.query_proj = nn.Linear(model_dim, model_dim)
        self.key_value_proj = nn.Linear(model_dim, 2 * model_dim)
        self.out_proj = nn.Linear(model_dim, model_dim)
        init_linear(self.query_proj, self.key_value_proj, self.out_proj)

    def project(self, memory_BSD: Tensor) -> KeyValue:
        """Keys and values [B,S,D] of an encoder output."""
        keys, values = self.key_value_proj(memory_BSD).chunk(2, dim=-1)
        return KeyValue(keys, values)

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        """Attend from [B,Q,D] to the source; the K beams of a sentence are queries of one row."""
        context.source_query = self.query_proj(x_BQD)
        out_BQD = attention(
            context.source_query,
            context.source.keys,
            context.source.values,
            num_heads=self.num_heads,
            mask=context.source_mask,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.out_proj(out_BQD)


def init_linear(*layers: nn.Linear) -> None:
    """Xavier-uniform weights and zero biases, as fairseq does."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@torch.no_grad()
def small_init(model: nn.Module) -> None:
    """All projections of attention in a model from N(0, sqrt(2 / (5 D))): the spread that Xavier's
    rule gives a feed-forward of 4 D (SmallInit; Nguyen and Salazar 2019)."""
    for module in model.modules():
        if isinstance(module, SelfAttention | SourceAttention):
            for layer in module.children():
                assert isinstance(layer, nn.Linear)
                layer.weight.normal_(0.0, math.sqrt(2 / (5 * layer.in_features)))
