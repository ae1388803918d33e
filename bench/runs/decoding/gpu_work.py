"""The least work for decoding a call on a GPU: operations, and bytes of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.machine.gpu import MeasuredGpu
from bench.systems.pytorch.eager_models import start_batch
from training.models import TranslationModel


@dataclass(frozen=True)
class GpuWork:
    """The least work for decoding a call."""

    operations: float
    """Operations of matrix products, without the attention of steps."""
    weight_bytes: float
    """Bytes of 16-bit weights, read once for the encoder and once per step."""

    def share(self, seconds: float, gpu: MeasuredGpu) -> tuple[float, float]:
        """Shares of the GPU's bandwidth and matrix speed that a call of this duration uses."""
        return (
            self.weight_bytes / seconds / gpu.bandwidth,
            self.operations / seconds / gpu.operations,
        )


def work_of(
    model: TranslationModel, batch: Sequence[Sequence[int]], beams: int, steps: int
) -> GpuWork:
    """The work of decoding these sources together, padded to the longest, with the same number of
    steps for all.

    It is counted in one run of the encoder and one step of PyTorch eager for the longest source.
    """
    with torch.inference_mode(), FlopCounterMode(display=False) as encoder:
        begun = start_batch(model, [max(batch, key=len)], 1)
    with torch.inference_mode(), FlopCounterMode(display=False) as step:
        begun.step(torch.zeros(1, 1, dtype=torch.int64), 0)
    sizes = {name: p.numel() for name, p in model.named_parameters() if p.dim() > 1}
    encoding = sum(size for name, size in sizes.items() if _is_for_source(name))
    weights = encoding + steps * (sum(sizes.values()) - encoding)
    operations = encoder.get_total_flops() + steps * beams * step.get_total_flops()
    return GpuWork(float(len(batch) * operations), 2.0 * weights)


def _is_for_source(weight: str) -> bool:
    """Whether the weight of that name is read only once per call."""
    return weight.startswith("encoder.") or ".key_value_proj." in weight
