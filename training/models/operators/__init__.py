"""Operators that ONNX has as one node and PyTorch does not, each in two forms.

Models call them by their mathematical meaning, and only this module chooses the form: `eager`
computes in training and validation, `traced` leaves ONNX's own operator in the graph while
`torch.onnx` exports a model. Both have the same arguments and, apart from rounding, the same
results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from training.models.operators import eager, traced
from training.models.operators.eager import soft_cap

P = ParamSpec("P")
R = TypeVar("R")


def _chosen(computed: Callable[P, R], exported: Callable[P, R]) -> Callable[P, R]:
    """An operator that is `exported` while torch.onnx reads the model, else `computed`."""

    @functools.wraps(computed)
    def operator(*arguments: P.args, **options: P.kwargs) -> R:
        function = exported if torch.compiler.is_exporting() else computed
        return function(*arguments, **options)

    return operator


add_scores = _chosen(eager.add_scores, traced.add_scores)
attention = _chosen(eager.attention, traced.attention)
biased_attention = _chosen(eager.attention, traced.biased_attention)
capped_attention = _chosen(eager.capped_attention, traced.capped_attention)
convolve_ancestors = _chosen(eager.convolve_ancestors, traced.convolve_ancestors)
gather_rows = _chosen(eager.gather_rows, traced.gather_rows)
integer_divide = _chosen(eager.integer_divide, traced.integer_divide)
join_heads = _chosen(eager.join_heads, traced.join_heads)
listed_logits = _chosen(eager.listed_logits, traced.listed_logits)
reshape = _chosen(eager.reshape, traced.reshape)
split_heads = _chosen(eager.split_heads, traced.split_heads)
tensor_scatter = _chosen(eager.tensor_scatter, traced.tensor_scatter)

__all__ = [
    "add_scores",
    "attention",
    "biased_attention",
    "capped_attention",
    "convolve_ancestors",
    "gather_rows",
    "integer_divide",
    "listed_logits",
    "reshape",
    "soft_cap",
    "split_heads",
    "tensor_scatter",
]
