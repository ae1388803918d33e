"""Label-smoothed cross-entropy of decoder states. The product with the output matrix, the softmax
and the gradients of both are computed together, chunk by chunk, so that no [N,V] is ever in memory.

Shape letters: B sentences, T target positions, N labels, D model, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from serving.search.ids import PAD_ID
from training.models.base import Network

_CHUNK, _GPU_CHUNK = 1 << 23, 1 << 26
"""Logits that are computed together: as many as stay in a processor's last cache, and as many as
occupy a GPU."""
_TINY = 1e-30
"""A probability below it has lost digits."""


def label_smoothed_loss(
    model: Network,
    states_BTD: Tensor,
    labels_BT: Tensor,
    smoothing: float,
    *,
    ignored_id: int | None = PAD_ID,
) -> Tensor:
    """(1 - e) * NLL + e / V * sum_v(-log p_v), summed over labels other than `ignored_id`.

    The states are those of `Network.states`, before the output matrix, which is not applied to
    ignored positions. V counts the whole vocabulary, special ids included (fairseq's form of
    Szegedy et al. 2016). Under autocast logits and their gradient have its type; the loss is always
    fp32.
    """
    states_ND, labels_N = states_BTD.flatten(0, 1), labels_BT.flatten()
    if ignored_id is not None:
        kept = (labels_N != ignored_id).nonzero().squeeze(1)
        if len(kept) < len(labels_N):
            states_ND, labels_N = states_ND[kept], labels_N[kept]
    if model.logit_soft_cap:
        logits_NV = model.output_logits(states_ND).float()
        return torch.nn.functional.cross_entropy(
            logits_NV, labels_N, reduction="sum", label_smoothing=smoothing
        )
    loss: Tensor = _OutputLoss.apply(
        states_ND,
        model.output_weight,
        model.output_bias,
        labels_N,
        smoothing,
        torch.is_grad_enabled(),
    )
    return loss


class _OutputLoss(torch.autograd.Function):
    """The loss, with its gradient computed at the same time: softmax less the smoothed label. Only
    the label's own entry is subtracted from [N,V]; the part common to all V has rank one."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N: Tensor,
        smoothing: float,
        learns: bool,
    ) -> Tensor:
        device, dtype = states_ND.device.type, states_ND.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            output = _Output(weight_VD, bias_V, dtype)
            gradients = _Gradients(output, states_ND, smoothing) if learns else None
            loss = _sum_loss(output, states_ND.to(dtype), labels_N, smoothing, gradients)
        if gradients is not None:
            ctx.save_for_backward(gradients.states_ND, gradients.weight_VD, gradients.bias_V)
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, weight_VD, bias_V = ctx.saved_tensors
        # In place, as the matrix is large: a second backward over the same graph raises.
        for gradient in ctx.saved_tensors:
            if gradient is not None:
                gradient.mul_(upstream[0])
        return states_ND, weight_VD, bias_V, None, None, None


class _Output:
    """The output matrix and its bias, in the type in which logits are computed."""

    def __init__(self, weight_VD: Tensor, bias_V: Tensor | None, dtype: torch.dtype) -> None:
        self.exact = torch.promote_types(weight_VD.dtype, torch.float32)
        self.parameters = weight_VD, bias_V
        self.weight_VD = weight_VD.to(dtype)
        self.bias_V = None if bias_V is None else bias_V.to(dtype)
        self.mean_weight_D = weight_VD.mean(0, dtype=self.exact)
        self.mean_bias = 0.0 if bias_V is None else bias_V.mean(dtype=self.exact)

    def logits(self, x_ND: Tensor, out_NV: Tensor) -> None:
        """Logits of some states, into memory that is there."""
        torch.mm(x_ND, self.weight_VD.t(), out=out_NV)
        if self.bias_V is not None:
            out_NV += self.bias_V

    def mean_logits(self, x_ND: Tensor) -> Tensor:
        """The mean over the vocabulary, [N]."""
        return x_ND.to(self.exact) @ self.mean_weight_D + self.mean_bias


class _Gradients:
    """The gradients of states, matrix and bias, summed chunk by chunk."""

    def __init__(self, output: _Output, states_ND: Tensor, smoothing: float) -> None:
        weight_VD, bias_V = output.parameters
        self._output, self._smoothing = output, smoothing
        self.states_ND = torch.empty_like(states_ND)
        share = smoothing / len(weight_VD)
        common_D = -share * states_ND.sum(0, dtype=output.exact)
        self.weight_VD = torch.empty_like(weight_VD).copy_(common_D.expand_as(weight_VD))
        common = -share * len(states_ND)
        self.bias_V = None if bias_V is None else torch.full_like(bias_V, common)
        # Fresh memory for the product of each chunk would cost more than the product.
        self._product_VD = torch.empty_like(output.weight_VD)
        self._cast_product_VD = torch.empty_like(weight_VD)

    def add(self, rows: slice, x_ND: Tensor, probability_NV: Tensor, label_N: Tensor) -> None:
        """Add a chunk, whose probabilities are overwritten by their gradient."""
        gradient_NV = probability_NV
        # Not scatter_add_, which copies all of its tensor twice on a CPU.
        gradient_NV[torch.arange(len(x_ND), device=x_ND.device), label_N] += self._smoothing - 1
        common_D = self._smoothing * self._output.mean_weight_D
        self.states_ND[rows] = gradient_NV @ self._output.weight_VD - common_D
        if x_ND.dtype == self.weight_VD.dtype:
            self.weight_VD.addmm_(gradient_NV.t(), x_ND)
        else:
            torch.mm(gradient_NV.t(), x_ND, out=self._product_VD)
            self.weight_VD += self._cast_product_VD.copy_(self._product_VD)
        if self.bias_V is not None:
            self.bias_V += gradient_NV.sum(0)


def _sum_loss(
    output: _Output,
    states_ND: Tensor,
    labels_N: Tensor,
    smoothing: float,
    gradients: _Gradients | None,
) -> Tensor:
    vocab_size = len(output.weight_VD)
    together = max(1, (_GPU_CHUNK if states_ND.is_cuda else _CHUNK) // vocab_size)
    room = states_ND.new_empty(2, min(together, len(labels_N)), vocab_size)  # for all chunks
    total = torch.zeros((), dtype=torch.float64, device=states_ND.device)
    for start in range(0, len(labels_N), together):
        rows = slice(start, start + together)
        x_ND, label_N = states_ND[rows], labels_N[rows]
        logits_NV, probability_NV = room[:, : len(x_ND)]
        output.logits(x_ND, logits_NV)
        torch.softmax(logits_NV, 1, out=probability_NV)  # computed in fp32 at least
        nll_N = _negative_log_likelihood(logits_NV, probability_NV, label_N, output.exact)
        label_logit_N = logits_NV.gather(1, label_N[:, None])[:, 0].to(output.exact)
        loss_N = nll_N + smoothing * (label_logit_N - output.mean_logits(x_ND))
        total += loss_N.sum(dtype=torch.float64)
        if gradients is not None:
            gradients.add(rows, x_ND, probability_NV, label_N)
    return total.float()


def _negative_log_likelihood(
    logits_NV: Tensor, probability_NV: Tensor, label_N: Tensor, exact: torch.dtype
) -> Tensor:
    """The negative log-likelihood of each label, [N]. It is the logarithm of the probability, or is
    computed from the logits if the probability is too small for that."""
    nll_N = -probability_NV.gather(1, label_N[:, None])[:, 0].to(exact).log()
    tiny = (nll_N > -math.log(_TINY)).nonzero()[:, 0]
    if len(tiny):
        logits = logits_NV[tiny].to(exact)
        label_logit = logits.gather(1, label_N[tiny, None])[:, 0]
        nll_N[tiny] = logits.logsumexp(1) - label_logit
    return nll_N
