"""The share of a machine's matrix speed that training reaches."""

from __future__ import annotations

import functools
import logging
import time
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from training.models import Trainable
from training.tasks.task import Task

logger = logging.getLogger(__name__)

_SMALLEST, _LARGEST = 256, 8192
_SECONDS = 0.5


@functools.cache
def matrix_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of square matrix products, the best of several.

    The size grows until a product takes long enough for the machine to reach full speed. It is
    measured once in a process, for half a second.
    """
    size, best, start = _SMALLEST, 0.0, time.perf_counter()
    while time.perf_counter() - start < _SECONDS:
        matrix = torch.ones(size, size, device=device, dtype=dtype)
        began = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for a GPU
        taken = time.perf_counter() - began
        best = max(best, 2 * size**3 / taken)
        if taken < _SECONDS / 20 and size < _LARGEST:
            size *= 2
    return best


@torch.no_grad()
def operations_per_label(
    model: Trainable, data: Task, batches: list[Any], device: torch.device, *, bf16: bool
) -> float:
    """Floating-point operations per label of the matrix products in an update over the batches.

    They are counted in one forward pass; the backward pass has two products for each. The model is
    left in evaluation mode.
    """
    model.eval()
    counter, labels = FlopCounterMode(display=False), 0
    # The counter does not know the fused attention of CPUs, which a block from elsewhere may use.
    written_out = sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()
    # A compiled model cannot be traced while it is counted, and would stay uncompiled from then on.
    as_written = torch.compiler.set_stance("force_eager")
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
    with counter, written_out, as_written, autocast:
        for batch in batches:
            collated = data.collate(batch, device)
            labels += collated.num_labels
            data.loss(model, collated, 0.0)
    return 3 * counter.get_total_flops() / labels


def matrix_seconds(
    model: Trainable, data: Task, batches: list[Any], device: torch.device, *, bf16: bool
) -> float:
    """Seconds per label of these batches if training were only matrix products at their best
    measured speed."""
    speed = matrix_speed(device, torch.bfloat16 if bf16 else torch.float32)
    work = operations_per_label(model, data, batches, device, bf16=bf16)
    logger.info(
        "an update takes %.3g MFLOP a label; matrix products in %s: %.1f GFLOP/s",
        work / 1e6,
        "bf16" if bf16 else "fp32",
        speed / 1e9,
    )
    if bf16 and device.type == "cpu":
        exact = matrix_speed(device, torch.float32)
        if exact > 2 * speed:
            logger.warning(
                "this processor multiplies bf16 more slowly than fp32 (%.1f GFLOP/s): "
                "loop.bf16=false should train faster",
                exact / 1e9,
            )
    return work / speed
