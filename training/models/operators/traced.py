"""The operators as torch.onnx should write them: one operator of opset 24 each.

torch.onnx translates the eager forms correctly but at length: it computes shapes at every call,
gathers elements one by one, and divides in eight operators. Shape letters as in `eager`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.models.dropout import KEEP_ALL, WeightDropout

OPSET = 24
LISTED_LOGITS = "macaron::ListedLogits"
"""Operator that stands for `listed_logits` in a graph until `export.graphs.lowering` replaces
it."""
ANCESTOR_CONVOLUTION = "macaron::AncestorConvolution"
"""Operator that stands for `convolve_ancestors` in such a graph."""


def tensor_scatter(cache: Tensor, new: Tensor, write_index_B: Tensor) -> Tensor:
    """`TensorScatter` of ONNX along the slots, the axis before the last of a cache [...,C,D]."""
    result: Tensor = torch.onnx.ops.symbolic(
        "TensorScatter",
        (cache, new, write_index_B),
        attrs={"axis": cache.dim() - 2},
        dtype=cache.dtype,
        shape=cache.shape,
        version=OPSET,
    )
    return result


def reshape(x: Tensor, shape: tuple[int, ...], exported: tuple[int, ...]) -> Tensor:
    """`Reshape` to a constant shape, with 0 for sizes that stay."""
    result: Tensor = torch.onnx.ops.symbolic(
        "Reshape", (x, torch.tensor(exported)), dtype=x.dtype, shape=shape, version=OPSET
    )
    return result


def split_heads(x_BQD: Tensor, num_heads: int) -> Tensor:
    """`Reshape` and `Transpose`, without a size of the call."""
    width = x_BQD.shape[2] // num_heads
    shape = (*x_BQD.shape[:2], num_heads, width)
    return reshape(x_BQD, shape, (0, 0, num_heads, width)).transpose(1, 2)


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
    """`Attention`: with three axes and the numbers of heads, or with four axes, by head.

    Graphs are for evaluation, with masks that hide later positions: nothing is dropped.
    """
    assert not causal
    del dropout
    by_head = query.dim() == 4
    scale = (query.shape[-1] // (1 if by_head else num_heads)) ** -0.5
    if scales_queries:
        # ONNX Runtime has a kernel for one query that takes no factor: it is the query's, then,
        # and goes into the weights that made it.
        query, scale = query * scale, 1.0
    kv_heads = key.shape[-1] * num_heads // query.shape[-1]
    sizes = {} if by_head else {"q_num_heads": num_heads, "kv_num_heads": kv_heads}
    result: Tensor = torch.onnx.ops.symbolic(
        "Attention",
        (query, key, value, mask),
        attrs={"scale": scale, **sizes},
        dtype=query.dtype,
        shape=query.shape,
        version=OPSET,
    )
    return join_heads(result) if by_head else result


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
    """`Attention` with a soft cap of the scores, which are masked after it."""
    assert not causal
    del dropout
    by_head = query.dim() == 4
    width = query.shape[-1] // (1 if by_head else num_heads)
    kv_heads = key.shape[-1] // width
    sizes = {} if by_head else {"q_num_heads": num_heads, "kv_num_heads": kv_heads}
    result: Tensor = torch.onnx.ops.symbolic(
        "Attention",
        (query, key, value, mask),
        attrs={"scale": width**-0.5, "softcap": cap, **sizes},
        dtype=query.dtype,
        shape=query.shape,
        version=OPSET,
    )
    return join_heads(result) if by_head else result


def biased_attention(
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
    """`attention` of three axes whose mask differs between heads, written out: the runtime's
    kernels read one mask for all heads, and use of it only which positions are hidden."""
    assert not causal
    assert mask is not None
    del dropout, scales_queries
    query = query * (query.shape[-1] // num_heads) ** -0.5
    query, key, value = (split_heads(x, num_heads) for x in (query, key, value))
    scores = query @ key.transpose(-1, -2) + mask
    return join_heads(scores.softmax(-1) @ value)


def add_scores(log_probs_BQV: Tensor, scores_BK: Tensor) -> Tensor:
    """`Add` whose result has K rows; torch.export would take Q and K for the same size."""
    rows, beams = scores_BK.shape
    result: Tensor = torch.onnx.ops.symbolic(
        "Add",
        (log_probs_BQV, scores_BK.unsqueeze(-1)),
        dtype=log_probs_BQV.dtype,
        shape=(rows, beams, log_probs_BQV.shape[2]),
        version=OPSET,
    )
    return result


def convolve_ancestors(
    x_BQD: Tensor, cache_BCD: Tensor, write_index_B: Tensor, ancestors_BQW: Tensor, kernel: Tensor
) -> tuple[Tensor, Tensor]:
    """`ANCESTOR_CONVOLUTION`, which the lowering replaces by standard operators."""
    out_BQD, appended_BCD = torch.onnx.ops.symbolic_multi_out(
        ANCESTOR_CONVOLUTION,
        (x_BQD, cache_BCD, write_index_B, ancestors_BQW, kernel),
        dtypes=(x_BQD.dtype, cache_BCD.dtype),
        shapes=(x_BQD.shape, cache_BCD.shape),
        version=1,
    )
    return out_BQD, appended_BCD


def gather_rows(x_BGW: Tensor, row_BN: Tensor) -> Tensor:
    """Whole rows of [B,G,W] by their numbers [B,N]: `GatherND` of ONNX with one batch axis."""
    result: Tensor = torch.onnx.ops.symbolic(
        "GatherND",
        (x_BGW, row_BN.unsqueeze(-1)),
        attrs={"batch_dims": 1},
        dtype=x_BGW.dtype,
        shape=(*row_BN.shape, x_BGW.shape[2]),
        version=OPSET,
    )
    return result


def integer_divide(dividend: Tensor, divisor: int) -> Tensor:
    """`Div`, which rounds towards zero: down, if nothing is negative."""
    result: Tensor = torch.onnx.ops.symbolic(
        "Div",
        (dividend, torch.tensor(divisor)),
        dtype=dividend.dtype,
        shape=dividend.shape,
        version=OPSET,
    )
    return result


def listed_logits(
    x_BQD: Tensor, weight_VD: Tensor, columns_BL: Tensor, bias_V: Tensor | None = None
) -> Tensor:
    """`LISTED_LOGITS`, which the lowering replaces by a gather and a product, with or without a
    bias."""
    result: Tensor = torch.onnx.ops.symbolic(
        LISTED_LOGITS,
        (x_BQD, weight_VD, columns_BL, *([] if bias_V is None else [bias_V])),
        dtype=x_BQD.dtype,
        shape=(*x_BQD.shape[:2], columns_BL.shape[1]),
        version=1,
    )
    return result


def join_heads(x_BHQE: Tensor) -> Tensor:
    """The opposite of `split_heads`: [B,H,Q,E] becomes [B,Q,D]."""
    rows, heads, queries, width = x_BHQE.shape
    x_BQHE = x_BHQE.transpose(1, 2)
    return reshape(x_BQHE, (rows, queries, heads * width), (0, 0, heads * width))
