"""Which products keep fp32 weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.errors import ParityError
from export.exclusion import keep_exact, keep_rows
from export.quantize import QuantizedLinear, StaticRange


class Chain(nn.Module):
    """Three products; an input of the first and of the third is far larger than all others, and
    weighs nothing: as int8 they are far from fp32, the first one further."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(8, 16, generator=generator)
        self.outliers = (3000.0, 0.0, 100.0)
        weights = [torch.randn(16, 16, generator=generator) / 4 for _ in range(3)]
        for weight, outlier in zip(weights, self.outliers, strict=True):
            if outlier:
                weight[:, 0] = 0.0
        self.products = nn.ModuleList(QuantizedLinear(weight, None) for weight in weights)
        self.runs = 0
        self.wanted = self._exact()

    @torch.no_grad()
    def forward(self) -> Tensor:
        x = self.x
        for product, outlier in zip(self.products, self.outliers, strict=True):
            if outlier:
                x = torch.cat([torch.full((8, 1), outlier), x[:, 1:]], 1)
            x = product(x)
        return x

    def changes(self) -> NDArray[np.float64]:
        self.runs += 1
        return np.array([float((self() - self.wanted).square().mean().sqrt() / self.wanted.std())])

    def _exact(self) -> Tensor:
        for product in self.products:
            product.exact = True
        found = self()
        for product in self.products:
            product.exact = False
        return found


@pytest.mark.parametrize(("limit", "wanted"), [(1e9, []), (0.5, [0])])
def test_the_worst_come_first_and_no_more_than_needed(limit: float, wanted: list[int]) -> None:
    chain = Chain()
    kept = keep_exact(chain, chain.changes, limit)
    products = [p for p in chain.products if isinstance(p, QuantizedLinear)]
    assert kept == {products[n].key for n in wanted}
    assert [n for n, p in enumerate(products) if p.exact] == wanted
    assert chain.changes().sum() <= limit
    assert chain.runs <= 5


def test_where_nearly_all_would_stay_fp32_another_arithmetic_is_named() -> None:
    chain = Chain()
    with pytest.raises(ParityError, match=r"3 of 3 products .* --activations row16"):
        keep_exact(chain, chain.changes, 1e-9)


def test_scales_for_each_row_come_to_those_whose_rows_differ() -> None:
    """The range of one product cuts off what is far within those of its inputs."""
    chain = Chain()
    for product, peak in zip(chain.products, (3000.0, 0.01, 100.0), strict=True):
        product.range = StaticRange(peak, signed=True)
    spoilt = chain.changes().sum()
    (product,) = (p for p in chain.products if p.range is not None and p.range.peak == 0.01)
    assert isinstance(product, QuantizedLinear)
    assert product.key in keep_rows(chain, chain.changes, spoilt / 2)


def test_a_change_that_is_no_number_is_none_that_may_stay() -> None:
    chain = Chain()
    with pytest.raises(ParityError, match="3 of 3"):
        keep_exact(chain, lambda: np.array([0.0, np.nan]), 1.0)


def test_what_may_be_chance_on_a_short_text_keeps_nothing() -> None:
    chain = Chain()
    few = np.array([0.02, -0.01, 0.03, -0.02])  # 0.02 in all, and a standard error of 0.05
    assert keep_exact(chain, lambda: few, 0.01) == frozenset()
    many = np.repeat(few / 100, 100)  # the same in all, and a standard error of 0.005
    with pytest.raises(ParityError, match="3 of 3"):
        keep_exact(chain, lambda: many, 0.01)


def test_an_exact_product_is_that_of_the_weights() -> None:
    weight, bias, x = torch.randn(5, 8), torch.randn(5), torch.randn(2, 3, 8)
    product = QuantizedLinear(weight, bias)
    wanted: Tensor = nn.functional.linear(x, weight, bias)
    assert not torch.equal(product(x), wanted)
    product.exact = True
    assert torch.equal(product(x), wanted)
