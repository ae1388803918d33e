"""Rounding by GPTQ, beside the plain elimination that it is a fast form of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from export.arithmetic.gptq import DAMPING, round_columns, rounded_weights
from export.arithmetic.quantize import LEVELS, SMALLEST, quantize_columns
from export.errors import ParityError


def alike(rows: int, inputs: int, seed: int) -> Tensor:
    """Inputs [T,K] that have much in common, one of them far larger than the others."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    x_TK = common @ torch.randn(3, inputs, generator=generator, dtype=torch.float64)
    x_TK += 0.2 * torch.randn(rows, inputs, generator=generator, dtype=torch.float64)
    x_TK[:, 1] *= 30
    return x_TK


def by_elimination(weight_KN: Tensor, hessian_KK: Tensor) -> Tensor:
    """Optimal brain quantisation in a fixed order (Frantar et al. 2022, equations 2 and 3)."""
    inputs = len(weight_KN)
    mean = hessian_KK.diagonal().mean()
    inverse = torch.linalg.inv(hessian_KK + (DAMPING * mean + SMALLEST) * torch.eye(inputs))
    scale_N = torch.from_numpy(quantize_columns(weight_KN.float().numpy())[1]).double()
    left, found = weight_KN.clone(), torch.empty_like(weight_KN)
    for k in torch.argsort(hessian_KK.diagonal(), descending=True).tolist():
        found[k] = (left[k] / scale_N).round().clamp(-LEVELS, LEVELS) * scale_N
        error_N = (left[k] - found[k]) / inverse[k, k]
        left -= inverse[:, k, None] * error_N
        inverse -= inverse[:, k, None] * inverse[k, None] / inverse[k, k].clone()
        inverse[k], inverse[:, k] = 0.0, 0.0
    return found


@pytest.mark.parametrize("inputs", [5, 40, 150])
def test_it_equals_the_elimination_of_one_input_after_the_other(inputs: int) -> None:
    x_TK, weight_KN = alike(200, inputs, 1), torch.randn(inputs, 7, dtype=torch.float64)
    hessian_KK = x_TK.T @ x_TK
    found = round_columns(weight_KN.clone(), hessian_KK.clone())
    torch.testing.assert_close(found, by_elimination(weight_KN, hessian_KK))


def test_outputs_are_nearer_than_with_plain_rounding_on_other_text_too() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).eval()
    x_TK = alike(1000, 64, 2).float()
    rounded = rounded_weights(model, lambda: model(x_TK[:500]))
    plain = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).eval()
    plain.load_state_dict(model.state_dict())
    for layer in (plain[0], plain[2]):
        assert isinstance(layer, nn.Linear)
        levels, scales = quantize_columns(layer.weight.detach().numpy().T)
        layer.weight.data = torch.from_numpy((levels * scales).T.copy())
    with torch.no_grad():
        wanted = model(x_TK[500:])
        errors = [float((each(x_TK[500:]) - wanted).square().mean()) for each in (rounded, plain)]
    assert errors[0] < errors[1] / 2


def test_the_levels_are_found_again() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(40, 30, bias=False), nn.Linear(30, 20)).eval()
    x_TK = alike(300, 40, 5).float()
    rounded = rounded_weights(model, lambda: model[0](x_TK))
    weight_KN = rounded[0].weight.detach().numpy().T
    levels, scales = quantize_columns(weight_KN)
    np.testing.assert_allclose(levels * scales, weight_KN, rtol=1e-6, atol=1e-9)
    assert torch.equal(rounded[1].weight, model[1].weight)  # which nothing went through
    again = rounded_weights(rounded, lambda: rounded[0](x_TK))
    torch.testing.assert_close(again[0].weight, rounded[0].weight, rtol=1e-6, atol=1e-9)
    coarse = nn.Linear(40, 30, bias=False)  # on fewer levels than there are
    coarse.weight.data = torch.randint(-20, 21, (30, 40)) * 0.03
    same = rounded_weights(coarse, lambda: coarse(x_TK))
    torch.testing.assert_close(same.weight, coarse.weight, rtol=1e-6, atol=1e-9)


def test_numbers_that_are_not_finite_are_reported() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(ParityError, match="0: its inputs are not finite"):
        rounded_weights(model, lambda: model(torch.tensor([[1.0, torch.nan, 0.0, 2.0]])))


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    x_TK = alike(100, 12, 6)
    x_TK[:, 4] = 0.0
    weight_KN = torch.randn(12, 5, dtype=torch.float64)
    found = round_columns(weight_KN, x_TK.T @ x_TK)
    assert torch.isfinite(found).all()
    assert torch.isfinite(round_columns(weight_KN, torch.zeros(12, 12, dtype=torch.float64))).all()
