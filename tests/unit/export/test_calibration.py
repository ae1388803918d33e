"""Which products get static activation scales, and which."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from export.calibration import calibrate
from export.quantize import LEVELS, QuantizedLinear, quantize_columns, weight_key


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


def test_rows_that_differ_much_keep_scales_of_their_own() -> None:
    model = Two()
    x = torch.rand(40, 8) + 1.0
    x[3, 2] = -3.5
    peaks = calibrate(model, lambda: model(x))
    assert peaks == {model.even.key: 3.5}
    assert (model.even.peak, model.uneven.peak, model.unused.peak) == (3.5, None, None)
    assert not model.even._forward_pre_hooks


def test_static_arithmetic_is_that_of_one_scale() -> None:
    linear = QuantizedLinear(torch.randn(5, 8), torch.randn(5))
    x = torch.randn(40, 8)
    by_row = linear(x)
    linear.peak = 2.0
    scale = 2.0 / LEVELS
    rows = (x / scale).round().clamp(-128, 127)
    assert (rows.abs() >= 127).any()  # beyond the peak values are cut off
    weight = linear.weight_KN.float() * linear.scale_N  # type: ignore[operator]
    torch.testing.assert_close(linear(x), rows * scale @ weight + linear.bias)
    assert not torch.equal(linear(x), by_row)


@pytest.mark.parametrize("factor", [0.5, 16.0])
def test_a_folded_factor_does_not_change_the_key(factor: float) -> None:
    weight = torch.randn(8, 5).numpy()
    key = weight_key(quantize_columns(weight)[0])
    assert weight_key(quantize_columns(weight * factor)[0]) == key
    assert weight_key(quantize_columns(weight[::-1].copy())[0]) != key
