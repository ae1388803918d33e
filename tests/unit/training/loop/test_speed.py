"""How much of a machine's matrix speed training uses."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.loop import speed
from training.loop.speed import matrix_seconds, matrix_speed, operations_per_label
from training.models.operators.eager import attention

CPU = torch.device("cpu")


class Rows:
    """A task whose batches are numbers of rows; each row is a label."""

    def collate(self, rows: int, device: torch.device) -> Any:
        return SimpleNamespace(rows=rows, num_labels=rows)

    def loss(self, model: nn.Module, batch: Any, smoothing: float) -> Tensor:
        total: Tensor = model(torch.ones(batch.rows, 30)).sum()
        return total


def test_operations_are_those_of_three_passes_of_each_product() -> None:
    model = nn.Sequential(nn.Linear(30, 50), nn.Dropout(0.5), nn.Linear(50, 7))
    before = torch.get_rng_state()
    found = operations_per_label(model, Rows(), [4, 9], CPU, bf16=False)  # type: ignore[arg-type]
    assert found == 3 * 2 * (30 * 50 + 50 * 7)
    assert torch.equal(torch.get_rng_state(), before)  # or a resumed run would not repeat itself
    assert all(parameter.grad is None for parameter in model.parameters())


class Attends(nn.Module):
    """Attention of 2 heads of 15 over all rows, in one kernel or as the models compute it."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self._fused = fused

    def forward(self, rows: Tensor) -> Tensor:
        x = rows[None]
        if not self._fused:
            return attention(x, x, x, num_heads=2, mask=None)
        heads = x.unflatten(-1, (2, 15)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("fused", [False, True])
def test_the_products_of_attention_count(fused: bool) -> None:
    found = operations_per_label(Attends(fused=fused), Rows(), [8], CPU, bf16=False)  # type: ignore[arg-type]
    assert found == 3 * 2 * (2 * 8 * 30)  # scores and sums of each of 8 rows over 8


def test_the_speed_is_of_this_machine_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = matrix_speed(CPU, torch.float32)
    assert 1e7 < found < 1e14
    monkeypatch.setattr(torch, "ones", None)  # whoever measures makes a matrix of them
    assert matrix_speed(CPU, torch.float32) == found
    with pytest.raises(TypeError):
        matrix_speed(CPU, torch.float64)


@pytest.mark.parametrize(("bf16", "fp32", "warned"), [(1e9, 3e9, True), (2e9, 3e9, False)])
def test_slow_bf16_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bf16: float,
    fp32: float,
    warned: bool,
) -> None:
    speeds = {torch.bfloat16: bf16, torch.float32: fp32}
    monkeypatch.setattr(speed, "matrix_speed", lambda device, dtype: speeds[dtype])
    with caplog.at_level(logging.WARNING):
        seconds = matrix_seconds(nn.Linear(30, 5), Rows(), [3], CPU, bf16=True)  # type: ignore[arg-type]
    assert seconds == 3 * 2 * 30 * 5 / bf16
    assert bool(caplog.messages) == warned
    assert all("loop.bf16=false should train faster" in text for text in caplog.messages)
