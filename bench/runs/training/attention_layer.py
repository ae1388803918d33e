"""Forward and backward pass of one attention at batch 1: light kinds beside PyTorch's fused
attention.

Each case runs in its own process, so that its peak memory can be measured.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bench.machine.memory import peak_rss
from bench.reports.report import Machine, head_lines, table_line
from training.models.sublayers.light_attention import light_attention, offset_mask

DIM, HEADS = 320, 16
"""Sizes of the paper's models on WikiText-2."""
OFFSETS = {
    "cascade, window 16": tuple(range(16)),
    "cascade, window 128": tuple(range(128)),
    "dilated, 3 taps at 0, 4, 8": (0, 4, 8),
    "dilated-memory, 0, 1, 2, 4, 8": (0, 1, 2, 4, 8),
}
CAUSAL, MASKED = "SDPA, causal", "SDPA with the mask of window 16"
_RUNS_FOR = 1.0
"""Duration of a repetition in seconds, so that short passes can be timed."""


@dataclass(frozen=True)
class AttentionTime:
    """The results of one kind at one length."""

    name: str
    length: int
    milliseconds: list[float]
    """Forward and backward pass, one entry per repetition."""
    peak_bytes: int
    """Increase of the process's peak memory."""


def time_attention(
    lengths: Sequence[int], repetitions: int, cores: int, progress: Callable[[str], None]
) -> list[AttentionTime]:
    """Time every kind at every length."""
    context = multiprocessing.get_context("spawn")
    found = []
    for length in lengths:
        for name in (*OFFSETS, CAUSAL, MASKED):
            progress(f"{name}, {length} positions")
            with context.Pool(1) as pool:
                times, peak = pool.apply(_time, (name, length, repetitions, cores))
            found.append(AttentionTime(name, length, times, peak))
    return found


def attention_markdown(command: str, machine: Machine, found: Sequence[AttentionTime]) -> str:
    """The table of all kinds and lengths, with speeds relative to fused causal attention."""
    subject = (
        f"One attention of {HEADS} heads, {DIM} features, batch 1, fp32: forward and backward, "
        "projections not counted."
    )
    lines = [*head_lines(command, machine, subject), ""]
    columns = ["positions", "attention", "ms (min-max)", "peak memory, MiB", "speed / SDPA, causal"]
    lines += [table_line(columns), table_line(["---:", "---", *["---:"] * 3])]
    causal = {
        each.length: statistics.median(each.milliseconds) for each in found if each.name == CAUSAL
    }
    for each in found:
        times, median = each.milliseconds, statistics.median(each.milliseconds)
        lines.append(
            table_line(
                [
                    str(each.length),
                    each.name,
                    f"{median:.2f} ({min(times):.2f}-{max(times):.2f})",
                    f"{each.peak_bytes / 2**20:.1f}",
                    f"{causal[each.length] / median:.2f}",
                ]
            )
        )
    return "\n".join(lines)


def _time(name: str, length: int, repetitions: int, cores: int) -> tuple[list[float], int]:
    torch.set_num_threads(cores)
    torch.manual_seed(0)
    inputs = [torch.randn(1, length, DIM, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(1, length, DIM)

    def run(parts: Sequence[Tensor], gradient: Tensor) -> None:
        _attend(name, parts).backward(gradient)
        for part in parts:
            part.grad = None

    # The first call of any operator allocates memory for good, which must not count here.
    small = [part[:, :160].detach().clone().requires_grad_() for part in inputs]
    run(small, gradient[:, :160])
    before = peak_rss()
    times = []
    run(inputs, gradient)
    for _ in range(repetitions):
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < _RUNS_FOR:
            run(inputs, gradient)
            count += 1
        times.append((time.perf_counter() - start) / count * 1000)
    return times, peak_rss() - before


def _attend(name: str, parts: Sequence[Tensor]) -> Tensor:
    query, key, value = parts
    if name in OFFSETS:
        return light_attention(query, key, value, OFFSETS[name], num_heads=HEADS)
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
    mask = None
    if name == MASKED:
        place = torch.arange(query.shape[1])
        distance = place[:, None] - place
        mask = offset_mask(distance[None, None], OFFSETS["cascade, window 16"])
    out = nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None
    )
    return out.transpose(1, 2).flatten(2)
