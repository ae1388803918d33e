"""What decoding a call on a GPU cannot do without: operations and weights that are read."""

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
    """What decoding a call cannot do without."""

    operations: float
    """Of matrix products, without the attention of a step."""
    weight_bytes: float
    """Weights in 16 bits that are read, once for the encoder and once a step."""

    def share(self, seconds: float, gpu: MeasuredGpu) -> tuple[float, float]:
        """Shares of the GPU's bandwidth and of its matrix speed that a call of that time uses."""
        return (
            self.weight_bytes / seconds / gpu.bandwidth,
            self.operations / seconds / gpu.operations,
        )


def work_of(
    model: TranslationModel, batch: Sequence[Sequence[int]], beams: int, steps: int
) -> GpuWork:
    """The work of decoding sources of ids together, padded to the longest, with as many steps for
    all.

    Counted in one run of the encoder and one step of PyTorch eager for the longest.
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
    """Whether a weight of that name is read once a call."""
    return weight.startswith("encoder.") or ".key_value_proj." in weight
