"""Which products keep fp32 weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from export.exclusion import keep_exact
from export.quantize import QuantizedLinear


class Chain(nn.Module):
    """Three products that cost 4, 1 and 2 as int8."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.products = nn.ModuleList(QuantizedLinear(torch.randn(3, 4), None) for _ in range(3))
        self.looks = 0

    def change(self) -> float:
        self.looks += 1
        costs = zip((4.0, 1.0, 2.0), self.products, strict=True)
        return -sum(cost for cost, product in costs if not product.exact)


def test_the_costliest_come_first_and_no_more_than_needed() -> None:
    for limit, wanted in ((7.0, []), (3.0, [0]), (2.9, [0, 2]), (0.5, [0, 2, 1])):
        chain = Chain()
        products = [*chain.products]
        assert keep_exact(chain, chain.change, limit) == {products[n].key for n in wanted}
        assert [n for n, p in enumerate(products) if p.exact] == sorted(wanted)
        assert chain.looks == 1 + (3 + len(wanted) if wanted else 0)


def test_a_change_that_is_no_number_is_none_that_may_stay() -> None:
    chain = Chain()
    assert len(keep_exact(chain, lambda: float("nan"), 1.0)) == 3


def test_an_exact_product_is_that_of_the_weights() -> None:
    weight, bias, x = torch.randn(5, 8), torch.randn(5), torch.randn(2, 3, 8)
    product = QuantizedLinear(weight, bias)
    wanted: Tensor = nn.functional.linear(x, weight, bias)
    assert not torch.equal(product(x), wanted)
    product.exact = True
    assert torch.equal(product(x), wanted)
