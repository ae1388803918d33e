"""Which products keep fp32 weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.arithmetic.exclusion import keep_exact, keep_rows
from export.arithmetic.quantize import QuantizedLinear, StaticRange
from export.errors import ParityError

WIDTH = 16


class Products(nn.Module):
    """The sum of ten products, of three of which an input is far larger than all others and weighs
    nothing: as int8 they are far from fp32, the sixth furthest, then the second and the ninth."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(8, WIDTH, generator=generator)
        self.outliers = {5: 300.0, 1: 100.0, 8: 40.0}
        weights = [torch.randn(WIDTH, WIDTH, generator=generator) / 4 for _ in range(10)]
        for place in self.outliers:
            weights[place][:, 0] = 0.0
        self.products = nn.ModuleList(QuantizedLinear(weight, None) for weight in weights)
        self.runs = 0
        self.wanted = self._exact()

    @torch.no_grad()
    def forward(self) -> Tensor:
        total = torch.zeros(8, WIDTH)
        for place, product in enumerate(self.products):
            first = torch.full((8, 1), self.outliers.get(place, 1.0))
            total += product(torch.cat([first, self.x[:, 1:]], 1))
        return total

    def changes(self) -> NDArray[np.float64]:
        self.runs += 1
        return np.array([float((self() - self.wanted).square().mean().sqrt())])

    def all(self) -> list[QuantizedLinear]:
        return [product for product in self.products if isinstance(product, QuantizedLinear)]

    def _exact(self) -> Tensor:
        for product in self.all():
            product.exact = True
        found = self()
        for product in self.all():
            product.exact = False
        return found


def off_with(*exact: int) -> float:
    """How far the model is from fp32 with these products in fp32."""
    model = Products()
    for place in exact:
        model.all()[place].exact = True
    return float(model.changes().sum())


@pytest.mark.parametrize("wanted", [[], [5], [1, 5], [1, 5, 8]])
def test_those_that_gain_most_come_first_and_no_more_than_needed(wanted: list[int]) -> None:
    model = Products()
    products = model.all()
    limit = 1.01 * off_with(*wanted)
    kept = keep_exact(model, model.changes, limit)
    assert kept == {products[n].key for n in wanted}
    assert [n for n, p in enumerate(products) if p.exact] == wanted
    assert model.changes().sum() <= limit
    assert model.runs <= 3 + np.ceil(np.log2(len(products)))


def test_where_most_would_stay_fp32_another_arithmetic_is_named() -> None:
    model = Products()
    with pytest.raises(ParityError, match=r"of 10 products .* --activations row16"):
        keep_exact(model, model.changes, 1e-6)


def test_where_products_are_not_what_is_wrong_only_fp32_is_named() -> None:
    model = Products()
    for found in (np.array([0.0, np.nan]), np.array([3.0])):  # whatever is mended
        with pytest.raises(ParityError, match=r"with all .* off by (nan|3) .*--precision fp32;"):
            keep_exact(model, lambda found=found: model.changes() * 0.0 + found, 1.0)


def test_scales_for_each_row_come_to_those_whose_rows_differ() -> None:
    """The range of one product cuts off what is far within those of its inputs; three others are
    further from fp32, and a scale for each row would gain them nothing."""
    model = Products()
    for place, product in enumerate(model.all()):
        product.range = StaticRange(model.outliers.get(place, 5.0), signed=True)
    model.all()[3].range = None
    limit = 1.001 * float(model.changes().sum())
    model.all()[3].range = StaticRange(0.5, signed=True)
    assert model.changes().sum() > limit
    assert keep_rows(model, model.changes, limit) == {model.all()[3].key}


def test_what_may_be_chance_on_a_short_text_keeps_nothing() -> None:
    model = Products()
    few = np.array([0.05, -0.03, 0.06, -0.065])  # 0.015 in all, and a standard error of 0.12
    assert keep_exact(model, lambda: few, 0.01) == frozenset()
    many = np.repeat(few / 100, 100)  # the same in all, and a standard error of 0.012
    assert keep_exact(model, lambda: many, 0.01) == frozenset()
    more = np.repeat(few / 10_000, 10_000)  # and of 0.0012
    with pytest.raises(ParityError, match="even with all products in fp32"):
        keep_exact(model, lambda: more, 0.01)


def test_one_bad_sentence_is_no_chance() -> None:
    model = Products()
    with pytest.raises(ParityError, match="even with all products in fp32"):
        keep_exact(model, lambda: np.array([5.0, *[0.0] * 63]), 0.01)


def test_an_exact_product_is_that_of_the_weights() -> None:
    weight, bias, x = torch.randn(5, 8), torch.randn(5), torch.randn(2, 3, 8)
    product = QuantizedLinear(weight, bias)
    wanted: Tensor = nn.functional.linear(x, weight, bias)
    assert not torch.equal(product(x), wanted)
    product.exact = True
    assert torch.equal(product(x), wanted)
