"""The operators as PyTorch computes them.

Shape letters: B sentences, Q queries, K beams, C cache slots or keys, D model, H heads, E head,
V vocabulary, G groups of W tokens or W ancestors, K taps, N candidates, L pieces of the longest
shortlist.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.dropout import KEEP_ALL, WeightDropout


def tensor_scatter(cache: Tensor, new: Tensor, write_index_B: Tensor) -> Tensor:
    """The cache [B,C,D] or [B,H,C,E] with Q new rows per sentence from slot `write_index` on."""
    slots_BQ = write_index_B[:, None] + torch.arange(new.shape[-2], device=new.device)
    index = slots_BQ.reshape(len(cache), *[1] * (cache.dim() - 3), -1, 1).expand_as(new)
    return cache.scatter(-2, index, new.to(cache.dtype))


def reshape(x: Tensor, shape: tuple[int, ...], exported: tuple[int, ...]) -> Tensor:
    """The values of `x` in another shape. `exported` is the same shape without sizes that differ
    from call to call: 0 for an axis that stays, -1 for the rest."""
    del exported
    return x.reshape(shape)


def split_heads(x_BQD: Tensor, num_heads: int) -> Tensor:
    """[B,Q,D] laid out by head, [B,H,Q,E]."""
    return x_BQD.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def attention(
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
    """Scaled dot-product attention over `num_heads` heads (Vaswani et al. 2017, equation 1).

    Queries are [B,Q,D], keys and values [B,C,D]; or all of them are by head, [B,H,Q,E] and
    [B,H,C,E]. Keys and values may have fewer heads, each for as many successive heads of queries.
    `mask` is additive, broadcastable to [B,1,Q,C], that of `biased_attention` to [B,H,Q,C]. If
    `scales_queries` is false, an exported graph scales scores instead of queries. Returns [B,Q,D].
    """
    del scales_queries
    query, key, value = _heads(query, key, value, num_heads)
    if query.is_cuda and (dropout.rate == 0.0 or dropout.rows_sharing == 1):
        out = nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if mask is None else mask.to(query.dtype),
            is_causal=causal,
            dropout_p=dropout.rate,
        )
        return join_heads(out)
    # Written out: at sentence length the backward pass of the fused CPU kernel is several times
    # slower than these products (docs/background/decisions.md).
    scores = (query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)).float()
    return _weigh(scores, value, mask, causal=causal, dropout=dropout)


def capped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    num_heads: int,
    mask: Tensor | None,
    causal: bool = False,
    dropout: WeightDropout = KEEP_ALL,
    cap: float,
) -> Tensor:
    """`attention` with scores that come near `cap` and never reach it."""
    query, key, value = _heads(query, key, value, num_heads)
    scores = (query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)).float()
    return _weigh(soft_cap(scores, cap), value, mask, causal=causal, dropout=dropout)


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap), or `x` itself if the cap is 0."""
    return cap * torch.tanh(x / cap) if cap else x


def _heads(
    query: Tensor, key: Tensor, value: Tensor, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """All by head, [B,H,Q or C,E], and as many heads of keys and values as of queries."""
    if query.dim() != 4:
        kv_heads = key.shape[-1] * num_heads // query.shape[-1]
        query, key, value = (
            split_heads(x, heads)
            for x, heads in ((query, num_heads), (key, kv_heads), (value, kv_heads))
        )
    if key.shape[1] != query.shape[1]:
        each = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(each, 1), value.repeat_interleave(each, 1)
    return query, key, value


def _weigh(
    scores: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool, dropout: WeightDropout
) -> Tensor:
    """The values [B,H,C,E] weighted by the softmax of scores [B,H,Q,C], as [B,Q,D]."""
    if mask is not None:
        scores = scores + mask
    if causal:
        length = scores.shape[-1]
        scores = scores + torch.full((length, length), -torch.inf, device=scores.device).triu(1)
    probabilities = scores.softmax(-1).to(value.dtype)
    rate, rows_sharing = dropout
    if rows_sharing == 1:
        probabilities = nn.functional.dropout(probabilities, rate)
    elif rate:
        kept = probabilities.new_ones(len(value) // rows_sharing, *probabilities.shape[1:])
        kept = nn.functional.dropout(kept, rate)
        probabilities = probabilities * kept.repeat_interleave(rows_sharing, 0)
    return join_heads(probabilities @ value)


def add_scores(log_probs_BQV: Tensor, scores_BK: Tensor) -> Tensor:
    """[B,K,V]: each beam's score beside the log-probabilities of its query, or of the only one."""
    return log_probs_BQV + scores_BK.unsqueeze(-1)


def convolve_ancestors(
    x_BQD: Tensor, cache_BCD: Tensor, write_index_B: Tensor, ancestors_BQW: Tensor, kernel: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum for each query of taps times its own x, then the x of each of its nearest ancestors;
    and the cache with the new x in it.

    `kernel` is [B,Q,H,K] or [1,1,H,K], for H groups of features. K - 1 ancestors are read; those
    that are -1 count as zeros.
    """
    (rows, queries, dim), (heads, width) = x_BQD.shape, kernel.shape[2:]
    appended_BCD = tensor_scatter(cache_BCD, x_BQD, write_index_B)
    slots_BQW = ancestors_BQW[:, :, : width - 1]
    past = gather_rows(appended_BCD, slots_BQW.clamp(min=0).flatten(1))
    past_BQWD = past.view(rows, queries, width - 1, dim)
    past_BQWD = past_BQWD.masked_fill((slots_BQW < 0).unsqueeze(-1), 0.0)
    taken_BQKHE = torch.cat([x_BQD.unsqueeze(2), past_BQWD], 2).unflatten(-1, (heads, -1))
    out_BQHE = (taken_BQKHE * kernel.transpose(2, 3).unsqueeze(-1)).sum(2)
    return out_BQHE.flatten(2), appended_BCD


def gather_rows(x_BGW: Tensor, row_BN: Tensor) -> Tensor:
    """[B,N,W]: whole rows of each sentence, by their numbers."""
    return x_BGW.gather(1, row_BN.unsqueeze(-1).expand(-1, -1, x_BGW.shape[2]))


def integer_divide(dividend: Tensor, divisor: int) -> Tensor:
    """Quotient of non-negative integers, rounded down."""
    return dividend // divisor


def listed_logits(
    x_BQD: Tensor, weight_VD: Tensor, columns_BL: Tensor, bias_V: Tensor | None = None
) -> Tensor:
    """The logits of each sentence's own pieces, [B,Q,L], with arbitrary numbers where a sentence
    has no piece."""
    logits_BQL = x_BQD @ weight_VD[columns_BL].transpose(1, 2)
    return logits_BQL if bias_V is None else logits_BQL + bias_V[columns_BL].unsqueeze(1)


def join_heads(x_BHQE: Tensor) -> Tensor:
    """The opposite of `split_heads`: [B,H,Q,E] becomes [B,Q,D]."""
    return x_BHQE.transpose(1, 2).flatten(2)
