"""The sparse causal attentions of "Transformer on a Diet" (Wang et al. 2020).

A query at position i sees the keys at i - o for the offsets o of its layer. Training computes only
these, in time and memory O(length x offsets); decoding masks the few slots that its cache keeps.
Shape letters: B rows, T tokens, Q queries, C cache slots, D model, H heads, E head, O offsets, N
blocks, M queries of a block, W keys of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.configs.language_model import LanguageModelConfig
from training.models.context import CacheContext
from training.models.dropout import WeightDropout
from training.models.operators import soft_cap
from training.models.sublayers.attention import SelfAttention, with_cap
from training.models.sublayers.norms import QueryKeyNorm
from training.models.sublayers.positions import make_positions

_LEAST_BLOCK = 16  # smaller products do not fill a core's registers


def layer_offsets(config: LanguageModelConfig) -> list[tuple[int, ...] | None]:
    """The ascending offsets that a query sees, for each layer l from 0; None stands for all
    offsets.

    `dilated`: {0, d^l, ..., (k-1) d^l}; `dilated_memory`: these and those of the layers below;
    `cascade`: {0, ..., b m^l - 1} (section 3 of the paper, which does not say whether it counts
    layers from 0 or 1; the authors' code counts from 0); `windows`: the window that `layer_windows`
    gives for each layer.
    """
    offsets: list[tuple[int, ...] | None] = []
    seen: set[int] = set()
    for layer in range(config.num_decoder_layers):
        if config.attention == "full":
            offsets.append(None)
            continue
        if config.attention == "windows":
            window = config.window_of(layer)
            offsets.append(tuple(range(window)) if window else None)
            continue
        if config.attention == "cascade":
            window = config.first_window * config.window_multiplier**layer
            offsets.append(tuple(range(window)))
            continue
        dilation = config.dilation_base**layer
        own = {tap * dilation for tap in range(config.kernel_size)}
        seen |= own
        offsets.append(tuple(sorted(own if config.attention == "dilated" else seen)))
    return offsets


def layer_reach(config: LanguageModelConfig) -> list[int | None]:
    """The number of last positions, the query's own included, that each layer can see; None stands
    for all.

    A cache loses nothing if it keeps as many positions as the widest layer sees.
    """
    return [None if o is None else o[-1] + 1 for o in layer_offsets(config)]


def offset_mask(distance_B1QC: Tensor, offsets: tuple[int, ...]) -> Tensor:
    """Additive mask that is 0 where the distance from a query back to a slot is one of the offsets,
    -inf elsewhere."""
    if is_band(offsets):
        allowed = (distance_B1QC >= 0) & (distance_B1QC < len(offsets))
    else:
        allowed = distance_B1QC == offsets[0]
        for offset in offsets[1:]:
            allowed = allowed | (distance_B1QC == offset)
    hidden = torch.full((), -torch.inf, device=distance_B1QC.device)
    return torch.where(allowed, torch.zeros((), device=distance_B1QC.device), hidden)


def is_band(offsets: tuple[int, ...]) -> bool:
    """Whether the ascending offsets are 0, 1, 2 and so on."""
    return offsets[-1] == len(offsets) - 1


def light_attention(
    query_BTD: Tensor,
    key_BTD: Tensor,
    value_BTD: Tensor,
    offsets: tuple[int, ...],
    *,
    num_heads: int,
    dropout: float = 0.0,
    cap: float = 0.0,
) -> Tensor:
    """Attention of each position to the positions at `offsets` (ascending, from 0) before it,
    [B,T,D]; keys and values may have fewer heads, as in `attention`.

    The result equals `attention` under the mask of these offsets. `dropout` drops probabilities; a
    `cap` is that of `capped_attention`.
    """
    length = query_BTD.shape[1]
    if is_band(offsets) and len(offsets) >= length:
        return with_cap(cap)(
            query_BTD,
            key_BTD,
            value_BTD,
            num_heads=num_heads,
            mask=None,
            causal=True,
            dropout=WeightDropout(dropout),
        )
    query = query_BTD.unflatten(-1, (num_heads, -1))
    width = query.shape[-1]
    key, value = (x.unflatten(-1, (-1, width)) for x in (key_BTD, value_BTD))
    if key.shape[2] != num_heads:  # queries in groups, each with one head of keys and values
        key, value = (x.repeat_interleave(num_heads // x.shape[2], 2) for x in (key, value))
    query = query * width**-0.5
    attend = _banded if is_band(offsets) else _gathered
    return attend(query, key, value, offsets, dropout, cap).flatten(2)


def _gathered(
    query_BTHE: Tensor,
    key_BTHE: Tensor,
    value_BTHE: Tensor,
    offsets: tuple[int, ...],
    dropout: float,
    cap: float,
) -> Tensor:
    """Attention with one product of vectors per offset: keys and values are shifted views, and
    never copied together.

    Returns [B,T,H,E].
    """
    length = query_BTHE.shape[1]
    offsets = tuple(offset for offset in offsets if offset < length)
    scores = []
    for offset in offsets:
        score_BTH = (query_BTHE[:, offset:] * key_BTHE[:, : length - offset]).sum(-1).float()
        score_BTH = soft_cap(score_BTH, cap)
        scores.append(nn.functional.pad(score_BTH, (0, 0, offset, 0), value=-torch.inf))
    probabilities_OBTH = _probabilities(torch.stack(scores, -1), value_BTHE, dropout).unbind(-1)
    out_BTHE = probabilities_OBTH[0].unsqueeze(-1) * value_BTHE
    for offset, probability_BTH in zip(offsets[1:], probabilities_OBTH[1:], strict=True):
        part = probability_BTH[:, offset:].unsqueeze(-1) * value_BTHE[:, : length - offset]
        out_BTHE = out_BTHE + nn.functional.pad(part, (0, 0, 0, 0, offset, 0))
    return out_BTHE


def _banded(
    query_BTHE: Tensor,
    key_BTHE: Tensor,
    value_BTHE: Tensor,
    offsets: tuple[int, ...],
    dropout: float,
    cap: float,
) -> Tensor:
    """Blocks of queries, each with its own keys and the window before them. Returns [B,T,H,E]."""
    window, length = len(offsets), query_BTHE.shape[1]
    size = max(window, _LEAST_BLOCK)
    missing = -length % size

    def blocks(x_BTHE: Tensor) -> Tensor:
        """[B,H,N,M,E], zeros at the end."""
        x = nn.functional.pad(x_BTHE, (0, 0, 0, 0, 0, missing))
        return x.unflatten(1, (-1, size)).permute(0, 3, 1, 2, 4)

    def windows(x_BTHE: Tensor) -> Tensor:
        """[B,H,N,W,E]: each block after the last window - 1 rows of the one before."""
        own = blocks(x_BTHE)
        tails = own[:, :, :-1, size - (window - 1) :]
        return torch.cat([nn.functional.pad(tails, (0, 0, 0, 0, 1, 0)), own], 3)

    scores_BHNMW = (blocks(query_BTHE) @ windows(key_BTHE).transpose(-1, -2)).float()
    scores_BHNMW = soft_cap(scores_BHNMW, cap)
    place = torch.arange(size + window - 1, device=scores_BHNMW.device)
    offset_MW = place[window - 1 :, None] - place
    hidden_MW = (offset_MW < 0) | (offset_MW >= window)
    hidden_NMW = hidden_MW.repeat(scores_BHNMW.shape[2], 1, 1)
    hidden_NMW[0, :, : window - 1] = True  # there is nothing before the first block
    scores_BHNMW = scores_BHNMW.masked_fill(hidden_NMW, -torch.inf)
    out = _probabilities(scores_BHNMW, value_BTHE, dropout) @ windows(value_BTHE)
    return out.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :length]


def _probabilities(scores: Tensor, value: Tensor, dropout: float) -> Tensor:
    """Softmax over the last axis in fp32, in the values' dtype, some of it dropped."""
    return nn.functional.dropout(scores.softmax(-1).to(value.dtype), dropout)


class LightSelfAttention(SelfAttention):
    """Causal self-attention to the offsets of one layer; None stands for all offsets.

    Each of the three input projections is initialised on its own, as in the authors' code.
    """

    def __init__(self, config: LanguageModelConfig, offsets: tuple[int, ...] | None) -> None:
        super().__init__(
            config.model_dim,
            config.num_heads,
            config.attention_dropout,
            kv_heads=config.kv_heads,
            head_dim=config.head_width,
            bias=config.attention_bias,
            positions=make_positions(config),
        )
        if not config.attention_output_bias:
            self.out_proj.register_parameter("bias", None)
        self.query_key_norm = QueryKeyNorm(config) if config.query_key_norm != "none" else None
        self.offsets, self.cap = offsets, config.attention_soft_cap
        self.cap_scores(self.cap)
        rows = [heads * config.head_width for heads in self.head_counts]
        for weight in self.in_proj.weight.detach().split(rows):
            nn.init.xavier_uniform_(weight)

    def decode(self, x_BQD: Tensor, context: CacheContext, rows_sharing_dropout: int = 1) -> Tensor:
        """[B,Q,D] to [B,Q,D]; with a cache, `context.visible` is this layer's own mask."""
        if context.cached or self.offsets is None:
            return super().decode(x_BQD, context, rows_sharing_dropout)
        positions_1Q = torch.arange(x_BQD.shape[1], device=x_BQD.device)[None]
        query, key, value = self._split(self._project(x_BQD, positions_1Q))
        out_BQD = light_attention(
            query,
            key,
            value,
            self.offsets,
            num_heads=self.num_heads,
            dropout=self.dropout if self.training else 0.0,
            cap=self.cap,
        )
        return self.out_proj(self.head_dropout(out_BQD))

    def _project(self, x_BQD: Tensor, positions_BQ: Tensor) -> Tensor:
        if self.query_key_norm is None:
            return super()._project(x_BQD, positions_BQ)
        projected = self.query_key_norm(self.in_proj(x_BQD))
        return projected if self.rotary is None else self.rotary(projected, positions_BQ)
