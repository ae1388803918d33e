"""What a precision makes of a model and of the text to which it is fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from export.arithmetic.choice import Fitting, choose_arithmetic
from export.arithmetic.quantize import QuantizedLinear


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def fitting_of(model: nn.Module, limit: float = 1.0) -> Fitting[nn.Module]:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(5))

    def run(twin: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return twin(x)

    return Fitting(
        run=run,
        changes=lambda twin: lambda: (run(twin) - run(model)).abs().mean(-1).double().numpy(),
        limit=limit,
    )


def unused(_: object) -> None:
    raise AssertionError("a text that is not needed has been read")


def test_fp32_is_fitted_to_nothing(model: nn.Module) -> None:
    found = choose_arithmetic(model, Fitting(unused, unused, 0.0), "fp32", "row")
    assert (found.model, found.twin) == (model, model)


@pytest.mark.parametrize("activations", ["static", "row"])
def test_int8_has_ranges_where_they_are_static(model: nn.Module, activations: str) -> None:
    found = choose_arithmetic(model, fitting_of(model), "int8", activations)
    assert found.model is model
    assert len(found.products.ranges or ()) == (2 if activations == "static" else 0)
    assert found.products.exact == frozenset()


def test_rows_may_get_their_scales_before_products_stay_fp32(model: nn.Module) -> None:
    fitting = fitting_of(model)
    changes = iter([10.0, 10.0, 0.0, 0.0, 0.0])

    def changing(twin: nn.Module):
        def tell() -> np.ndarray:
            fitting.run(twin)
            return np.array([next(changes), 0.0])

        return tell

    mild = replace(fitting, changes=changing, keeps_rows=True)
    found = choose_arithmetic(model, mild, "int8", "static")
    assert len(found.products.ranges or ()) == 1
    assert found.products.exact == frozenset()


@pytest.mark.parametrize("rounds", [False, True])
def test_wide_activations_may_have_weights_that_were_rounded_to_the_text(
    model: nn.Module, rounds: bool
) -> None:
    fitting = replace(fitting_of(model), changes=unused, rounds_weights=rounds)
    found = choose_arithmetic(model, fitting, "int8", "row16")
    assert (found.model is not model) == rounds
    assert found.products.wide
    assert all(not isinstance(module, QuantizedLinear) for module in model.modules())


def test_weights_are_rounded_to_several_parts_at_once_where_these_are_given(
    model: nn.Module,
) -> None:
    fitting = fitting_of(model)
    batched = Fitting(unused, unused, 0.0, fitting.run, rounds_weights=True)
    assert choose_arithmetic(model, batched, "int8", "row16").model is not model
    assert choose_arithmetic(model, batched, "fp16", "row").model is model
