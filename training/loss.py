"""Label-smoothed cross-entropy, chunked so that its fp32 temporaries stay in the cache.

Shape letters: N labels, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from serving.search.ids import PAD_ID

_CHUNK = 1 << 20
"""Logits that are looked at together."""


def label_smoothed_loss(
    logits_BTV: Tensor, labels_BT: Tensor, smoothing: float, *, ignored_id: int | None = PAD_ID
) -> Tensor:
    """(1 - e) * NLL + e / V * sum_v(-log p_v), summed over labels other than `ignored_id`.

    V counts the whole vocabulary, special ids included (fairseq's form of Szegedy et al. 2016).
    """
    loss: Tensor = _LabelSmoothedLoss.apply(
        logits_BTV.flatten(0, 1), labels_BT.flatten(), smoothing, ignored_id
    )
    return loss


class _LabelSmoothedLoss(torch.autograd.Function):
    """The gradient is formed beside the loss, so [N,V] exists once and in the logits' own dtype.

    Against `torch.nn.functional.cross_entropy` on fp32 logits this takes a fifth off a training
    step of the small presets on a CPU (docs/decisions.md).
    """

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, labels_N: Tensor, smoothing: float, ignored_id: int | None
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=logits_NV.device)
        gradient_NV = torch.empty_like(logits_NV)
        vocab_size = logits_NV.shape[1]
        together = max(1, _CHUNK // vocab_size)
        scratch = torch.empty(
            min(together, len(logits_NV)), vocab_size, dtype=torch.float32, device=logits_NV.device
        )
        for start in range(0, logits_NV.shape[0], together):
            rows = slice(start, start + together)
            label = labels_N[rows, None]
            keep = torch.ones_like(label) if ignored_id is None else label != ignored_id
            keep, label = keep.float(), label.clamp(min=0)  # an ignored id may be negative
            shifted = scratch[: len(label)].copy_(logits_NV[rows])
            shifted.sub_(shifted.amax(1, keepdim=True))
            label_logit = shifted.gather(1, label)
            mean_logit = shifted.mean(1, keepdim=True)
            exponential = shifted.exp_()
            normaliser = exponential.sum(1, keepdim=True)
            loss = normaliser.log() - (1 - smoothing) * label_logit - smoothing * mean_logit
            total += (loss * keep).sum()
            gradient = exponential.mul_(keep / normaliser).sub_(smoothing / vocab_size * keep)
            gradient.scatter_add_(1, label, (smoothing - 1) * keep)
            gradient_NV[rows] = gradient
        ctx.save_for_backward(gradient_NV)
        return total.float()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        # In place, as [N,V] is large: a second backward over the same graph raises.
        return gradient_NV.mul_(upstream[0].to(gradient_NV.dtype)), None, None, None
