"""Which products get static activation scales, and which."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.quantize import (
    LEVELS,
    QuantizedLinear,
    StaticRange,
    quantize_columns,
    weight_key,
)


class Two(nn.Module):
    """Two products, of which the second sees rows of very different sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.even = QuantizedLinear(torch.randn(5, 8), torch.randn(5))
        self.uneven = QuantizedLinear(torch.randn(5, 8), None)
        self.unused = QuantizedLinear(torch.randn(5, 8), None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = torch.ones(len(x), 1)
        sizes[0] = 1000.0
        return self.even(x) + self.uneven(x * sizes)


def test_what_is_never_negative_has_all_levels_above_zero() -> None:
    model = Two()
    x = torch.rand(40, 8)
    ranges = measure_ranges(model, lambda: model.even(x))
    assert ranges == {model.even.key: StaticRange(float(x.max()), signed=False)}
    assert (ranges[model.even.key].zero_point, StaticRange(1.0, signed=True).zero_point) == (0, 128)


def test_rows_that_differ_much_keep_scales_of_their_own() -> None:
    model = Two()
    x = torch.rand(40, 8) + 1.0
    x[3, 2] = -3.5
    peaks = measure_ranges(model, lambda: model(x))
    assert peaks == {model.even.key: StaticRange(3.5, signed=True)}
    assert model.even.range == StaticRange(3.5, signed=True)
    assert (model.uneven.range, model.unused.range) == (None, None)
    assert not model.even._forward_pre_hooks


@pytest.mark.parametrize("signed", [True, False])
def test_static_arithmetic_is_that_of_one_scale(signed: bool) -> None:
    linear = QuantizedLinear(torch.randn(5, 8), torch.randn(5))
    x = torch.randn(40, 8) if signed else torch.randn(40, 8).relu()
    by_row = linear(x)
    linear.range = StaticRange(2.0, signed=signed)
    scale = 2.0 / (LEVELS if signed else 255)
    rows = (x / scale).round()
    assert (rows > 127 if signed else rows > 255).any()  # beyond the peak values are cut off
    rows = rows.clamp(-128, 127) if signed else rows.clamp(0, 255)
    weight = linear.weight_KN.float() * linear.scale_N  # type: ignore[operator]
    torch.testing.assert_close(linear(x), rows * scale @ weight + linear.bias)
    assert not torch.equal(linear(x), by_row)


@pytest.mark.parametrize("factor", [0.5, 16.0])
def test_a_folded_factor_does_not_change_the_key(factor: float) -> None:
    weight = torch.randn(8, 5).numpy()
    key = weight_key(quantize_columns(weight)[0])
    assert weight_key(quantize_columns(weight * factor)[0]) == key
    assert weight_key(quantize_columns(weight[::-1].copy())[0]) != key
