"""Which products keep fp32 weights: the fewest without which int8 would cost too much."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from export.arithmetic.quantize import QuantizedLinear, run_watched
from export.errors import ParityError

MOST_EXACT = 0.5
"""Of a model's products: with more in fp32 an int8 bundle is neither small nor fast."""
Changes = Callable[[], NDArray[np.float64]]
"""Runs a twin on some text, and returns how far it is from its checkpoint, as shares of the text's
parts; their sum is the change, and 0 is equal."""

logger = logging.getLogger(__name__)


def keep_exact(twin: nn.Module, changes: Changes, limit: float) -> frozenset[bytes]:
    """Give products of a quantised twin their fp32 weights back until the change is within the
    limit, but for chance (`_is_near`).

    Those come first that gain most by it, relative to what they give. Returns the keys of their
    weights: none where the twin is near enough as it is. Raises ParityError where it takes more
    than `MOST_EXACT` of all, or all are not enough.
    """
    products = _products(twin)

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.exact = mended

    kept = _mend_until(products, mend, changes, limit, "fp32 weights")
    if len(kept) <= MOST_EXACT * len(products):
        return kept
    found = changes()
    if not _is_near(found, limit):  # all of them, then
        raise ParityError(
            f"with all products in fp32, too, an int8 bundle would be off by {found.sum():.2g} "
            f"(limit {limit:g}): export with --precision fp32; no bundle was written"
        )
    raise ParityError(
        f"{len(kept)} of {len(products)} products would have to stay fp32, eight bits are too few "
        "for this model: export it with --activations row16 or --precision fp32; no bundle was "
        "written"
    )


def keep_rows(twin: nn.Module, changes: Changes, limit: float) -> frozenset[bytes]:
    """`keep_exact` by milder means: products of static activations get a scale for each row."""
    ranges = {product: product.range for product in _products(twin) if product.range is not None}

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.range = None if mended else ranges[product]

    return _mend_until(list(ranges), mend, changes, limit, "scales for each row")


class _Mend(Protocol):
    """Mends a product, or undoes that."""

    def __call__(self, product: QuantizedLinear, *, mended: bool) -> None: ...


def _products(twin: nn.Module) -> list[QuantizedLinear]:
    return [module for module in twin.modules() if isinstance(module, QuantizedLinear)]


def _mend_until(
    products: Sequence[QuantizedLinear],
    mend: _Mend,
    changes: Changes,
    limit: float,
    what: str,
) -> frozenset[bytes]:
    """Mend products, the worst first, until the change is small enough; returns the keys of their
    weights.

    How many it takes is found by halving. To try each product alone would be as many runs as there
    are products, and on a short text it would find those whose change is nearest to zero by chance.
    """
    if _is_near(changes(), limit):
        return frozenset()
    worst_first = _worst_first(products, mend, changes)
    too_few, enough = 0, len(worst_first)
    while enough - too_few > 1:
        count = (too_few + enough) // 2
        for place, product in enumerate(worst_first):
            mend(product, mended=place < count)
        if _is_near(changes(), limit):
            enough = count
        else:
            too_few = count
    for place, product in enumerate(worst_first):
        mend(product, mended=place < enough)
    logger.info("%s: %d of %d products", what, enough, len(products))
    return frozenset(product.key for product in worst_first[:enough])


def _is_near(changes: NDArray[np.float64], limit: float) -> bool:
    """Whether their sum is within the limit but for chance: what a few sentences say of a text is
    known only up to its standard error, and mending products would not change that.

    As much again as the limit may be chance, and no more: that is where the gates are.
    """
    count = len(changes)
    error = math.sqrt(count * float(changes.var(ddof=1))) if count > 1 else 0.0
    return abs(float(changes.sum())) <= limit + min(error, limit)


def _worst_first(
    products: Sequence[QuantizedLinear], mend: _Mend, run: Callable[[], object]
) -> list[QuantizedLinear]:
    """Products by how much nearer to fp32 what they give while `run` runs would be if they were
    mended."""
    squares = {product: [0.0, 0.0] for product in products}

    def watch(product: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(product, QuantizedLinear)
        exact = nn.functional.linear(inputs[0], product.weight_NK, product.bias)
        mend(product, mended=True)
        mended = product.forward(inputs[0])  # not the module itself, which would be watched
        mend(product, mended=False)
        gain = (output - exact).square().sum() - (mended - exact).square().sum()
        squares[product][0] += float(gain)
        squares[product][1] += float(exact.square().sum())

    hooks = [product.register_forward_hook(watch) for product in products]
    run_watched(run, hooks)

    def gain(product: QuantizedLinear) -> float:
        gained, whole = squares[product]
        return gained / whole if whole else 0.0

    return sorted(products, key=gain, reverse=True)
