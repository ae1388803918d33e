"""16-bit arithmetic in PyTorch, and what is too large for fp16."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from export.arithmetic.half import (
    HALF_TYPES,
    LARGEST_FP16,
    RoundedLinear,
    fit_half,
    half_twin,
    head_key,
    linear_key,
    measure_magnitudes,
)
from tests.unit.training.tiny import tiny_model


@pytest.mark.parametrize("precision", HALF_TYPES)
def test_a_rounded_product_rounds_what_goes_in_and_out_and_no_sum(precision: str) -> None:
    dtype = HALF_TYPES[precision].torch
    torch.manual_seed(0)
    linear, x = nn.Linear(300, 20), torch.randn(7, 300) * 30
    found = RoundedLinear(linear.weight, linear.bias, dtype)(x)
    rounded = [t.detach().to(dtype).double() for t in (x, linear.weight, linear.bias)]
    exact = rounded[0] @ rounded[1].T + rounded[2]
    assert torch.equal(found, found.to(dtype).float())
    step = torch.finfo(dtype).eps * exact.abs().clamp_min(1e-3)
    assert ((found.double() - exact).abs() <= 0.51 * step).all()
    assert not torch.equal(found, linear(x))


def test_what_overflows_fp16_overflows_in_the_twin() -> None:
    linear = nn.Linear(1, 1, bias=False)
    nn.init.constant_(linear.weight, 2.0)
    x = torch.tensor([[LARGEST_FP16 * 0.6]])
    assert RoundedLinear(linear.weight, None, torch.float16)(x).isinf()
    assert RoundedLinear(linear.weight, None, torch.bfloat16)(x).isfinite()


@pytest.mark.parametrize("half_head", [True, False])
def test_a_twin_rounds_all_products_but_the_exact_ones(half_head: bool) -> None:
    model = tiny_model()
    kept = model.decoder[0].ffn.up_proj  # type: ignore[index, union-attr]
    exact = {linear_key(kept)} | (set() if half_head else {head_key(model)})
    twin = half_twin(model, HALF_TYPES["fp16"], frozenset(exact))
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    rounded = [name for name, module in twin.named_modules() if isinstance(module, RoundedLinear)]
    assert sorted({*linears} - {*rounded}) == ["decoder.0.ffn.up_proj"]
    assert ("output_layer" in rounded) == half_head
    assert torch.equal(twin.output_weight, model.output_weight)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
        nn.init.constant_(self.large.weight, 10_000.0)


def test_magnitudes_are_of_what_goes_into_and_comes_out_of_each_product() -> None:
    model = Two()
    x = torch.tensor([[1.0, -7.0], [0.5, 0.5]])
    found = measure_magnitudes(model, lambda: (model.small(x), model.large(x * 0.1)))
    assert found == {"small": 7.0, "large": pytest.approx(10_000.0)}
    found = measure_magnitudes(model, lambda: model.large(x))
    assert found["large"] == pytest.approx(60_000.0)
    assert found["small"] == max(float(p.detach().abs().max()) for p in model.small.parameters())
    assert not model.small._forward_hooks


@pytest.mark.parametrize(("size", "kept"), [(0.1, []), (0.3, ["large"]), (float("nan"), ["large"])])
def test_what_comes_near_the_largest_number_of_fp16_stays_fp32(
    size: float, kept: list[str]
) -> None:
    model = Two()
    x = torch.tensor([[1.0, -7.0]]) * size
    fit = fit_half(model, "fp16", lambda copied: copied.large(x))
    assert fit.report["fp16"]["kept_fp32"] == kept
    assert fit.report["fp16"]["limit"] == LARGEST_FP16 / 4
    assert fit.exact == {linear_key(getattr(model, name)) for name in kept}


def test_nothing_is_measured_for_bf16() -> None:
    fit = fit_half(Two(), "bf16", lambda _: pytest.fail("was run"))
    assert (fit.exact, fit.report) == (frozenset(), {})


@pytest.mark.parametrize(("size", "kept"), [(1.0, []), (1e4, ["output_layer"])])
def test_logits_too_large_for_fp16_are_a_product_that_stays_fp32(
    size: float, kept: list[str]
) -> None:
    model = tiny_model().eval()
    x = torch.full((1, 1, model.output_weight.shape[1]), size)
    fit = fit_half(model, "fp16", lambda copied: copied.output_logits(x))
    assert fit.report["fp16"]["kept_fp32"] == kept
    assert fit.exact == ({head_key(model)} if kept else frozenset())
