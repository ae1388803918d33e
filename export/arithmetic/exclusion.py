"""Chooses the products that keep fp32 weights: as few as possible, so that int8 stays accurate."""

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
"""Largest share of a model's products: with more in fp32 an int8 bundle is neither small nor
fast."""
Changes = Callable[[], NDArray[np.float64]]
"""Runs a twin on a text; returns its distance from the checkpoint for each part of the text. The
sum is the change; 0 means equal."""

logger = logging.getLogger(__name__)


def keep_exact(twin: nn.Module, changes: Changes, limit: float) -> frozenset[bytes]:
    """Give products of a quantised twin their fp32 weights back until the change is within the
    limit, apart from chance (`_is_near`).

    Products that gain most, relative to their outputs, come first. Returns the keys of their
    weights, empty if the twin is accurate enough. Raises ParityError if more than `MOST_EXACT` of
    all products would be needed, or if all are not enough.
    """
    products = _products(twin)
    most = int(MOST_EXACT * len(products))

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.exact = mended

    kept = _mend_until(products, mend, changes, limit, "fp32 weights", most)
    if kept is not None:
        return kept
    for product in products:
        mend(product, mended=True)
    found = changes()
    if not _is_near(found, limit):
        raise ParityError(
            f"even with all products in fp32, an int8 bundle would be off by {found.sum():.2g} "
            f"(limit {limit:g}): export with --precision fp32; no bundle was written"
        )
    raise ParityError(
        f"more than {most} of {len(products)} products would have to stay fp32, eight bits are too "
        "few for this model: export it with --activations row16 or --precision fp32; no bundle was "
        "written"
    )


def keep_rows(twin: nn.Module, changes: Changes, limit: float) -> frozenset[bytes]:
    """Replace static activations by a scale for each row in as many products as needed. This is a
    milder remedy than that of `keep_exact`, with the same result: the keys of the changed
    products."""
    ranges = {product: product.range for product in _products(twin) if product.range is not None}

    def mend(product: QuantizedLinear, *, mended: bool) -> None:
        product.range = None if mended else ranges[product]

    every = list(ranges)
    kept = _mend_until(every, mend, changes, limit, "scales for each row", len(every))
    assert kept is not None
    return kept


class _Mend(Protocol):
    """Changes a product to more exact arithmetic, or undoes that."""

    def __call__(self, product: QuantizedLinear, *, mended: bool) -> None: ...


def _products(twin: nn.Module) -> list[QuantizedLinear]:
    return [module for module in twin.modules() if isinstance(module, QuantizedLinear)]


def _mend_until(
    products: Sequence[QuantizedLinear],
    mend: _Mend,
    changes: Changes,
    limit: float,
    what: str,
    most: int,
) -> frozenset[bytes] | None:
    """Mend products, the worst first, until the change is small enough; returns the keys of their
    weights, or None if more than `most` would be needed. All products are assumed to be enough.

    The number is found by bisection. Trying each product separately would take one run for each,
    and on a short text it would prefer those whose change is near zero by chance.
    """
    if _is_near(changes(), limit):
        return frozenset()
    worst_first = _worst_first(products, mend, changes)

    def enough_are(count: int) -> bool:
        for place, product in enumerate(worst_first):
            mend(product, mended=place < count)
        return _is_near(changes(), limit)

    if most < len(worst_first) and not enough_are(most):
        return None
    too_few, enough = 0, most
    while enough - too_few > 1:
        count = (too_few + enough) // 2
        if enough_are(count):
            enough = count
        else:
            too_few = count
    for place, product in enumerate(worst_first):
        mend(product, mended=place < enough)
    logger.info("%s: %d of %d products", what, enough, len(products))
    return frozenset(product.key for product in worst_first[:enough])


def _is_near(changes: NDArray[np.float64], limit: float) -> bool:
    """Whether the sum is within the limit, apart from chance. A few sentences estimate the change
    only up to its standard error, and mending products would not reduce that error.

    Chance counts for at most the limit once more: the gates are at twice the limit.
    """
    count = len(changes)
    error = math.sqrt(count * float(changes.var(ddof=1))) if count > 1 else 0.0
    return abs(float(changes.sum())) <= limit + min(error, limit)


def _worst_first(
    products: Sequence[QuantizedLinear], mend: _Mend, run: Callable[[], object]
) -> list[QuantizedLinear]:
    """The products in the order of how much nearer their outputs would be to fp32 if they were
    mended, measured while `run` runs; the worst first."""
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
