"""Logits of each sentence's list in fp32, in 8 and in 16 bits, against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from export.arithmetic.quantize import Products, StaticRange, quantize_columns, weight_key
from export.passes.int8.listed_logits import lower_listed_logits
from tests.unit.export.passes.small_graph import constants_of, kinds, rewritten, run, small_graph
from tests.unit.export.passes.small_listed import listed, listed_bias, listed_feed, listed_table


def wanted(x: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """x [B,Q,D] times the rows in the columns [B,L]."""
    return np.asarray(np.einsum("bqd,bld->bql", x, table[listed_feed(1)["columns"]]))


def exact(dim: int) -> NDArray[np.float64]:
    x, table = listed_feed(dim)["x"], listed_table(dim)
    return wanted(x.astype(np.float64), table.astype(np.float64))


def key(dim: int) -> bytes:
    return weight_key(quantize_columns(listed_table(dim).T)[0])


@pytest.mark.parametrize(("dim", "products"), [(8, 1), (128, 1), (129, 2), (300, 3)])
def test_floats_are_summed_in_parts_of_one_order(dim: int, products: int) -> None:
    model = rewritten(listed(dim), lower_listed_logits)
    onnx.checker.check_model(model)
    assert kinds(model).count("MatMul") == products
    np.testing.assert_allclose(run(model, listed_feed(dim))[0], exact(dim), rtol=1e-4, atol=1e-4)


def rounded(values: NDArray[np.float64], scale: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.clip(np.rint(values / scale), -128, 127) * scale


def test_integers_are_the_rounded_rows_times_the_rounded_table() -> None:
    dim = 16
    x = listed_feed(dim)["x"].astype(np.float64)
    levels, scale = quantize_columns(listed_table(dim).T)
    table = (levels * scale.astype(np.float64)).T
    by_row = rounded(x, np.abs(x).max(-1, keepdims=True) / 127)
    model = rewritten(listed(dim), lower_listed_logits, int8=True)
    assert constants_of(model)["table_s8"].dtype == np.int8
    assert "MatMul" not in kinds(model)
    (found,) = run(model, listed_feed(dim))
    np.testing.assert_allclose(found, wanted(by_row, table), rtol=1e-5, atol=1e-5)


def test_16_bits_are_nearer_than_8() -> None:
    dim = 16
    levels, scale = quantize_columns(listed_table(dim).T)
    table = (levels * scale.astype(np.float64)).T
    best = wanted(listed_feed(dim)["x"].astype(np.float64), table)
    errors = []
    for wide in (False, True):
        products = Products(wide=wide)
        model = rewritten(listed(dim), lower_listed_logits, int8=True, products=products)
        assert kinds(model).count("MatMulInteger") == 1 + wide
        errors.append(np.abs(run(model, listed_feed(dim))[0] - best).max())
    assert errors[1] < errors[0] / 50


@pytest.mark.parametrize("products", [None, Products(), Products(wide=True)])
def test_a_bias_is_that_of_each_listed_piece(products: Products | None) -> None:
    dim, given = 16, {"int8": products is not None, "products": products or Products()}
    plain, biased = (
        run(rewritten(listed(dim, biased=each), lower_listed_logits, **given), listed_feed(dim))[0]
        for each in (False, True)
    )
    own = listed_bias()[listed_feed(dim)["columns"]][:, None]
    np.testing.assert_allclose(biased, plain + own, rtol=1e-6, atol=1e-6)


def test_a_static_range_is_one_scale_and_cuts_off() -> None:
    dim = 16
    products = Products({key(dim): StaticRange(1.0, signed=True)})
    model = rewritten(listed(dim), lower_listed_logits, int8=True, products=products)
    assert "ReduceMax" not in kinds(model)
    levels, scale = quantize_columns(listed_table(dim).T)
    x = rounded(listed_feed(dim)["x"].astype(np.float64), 1 / 127)
    table = (levels * scale.astype(np.float64)).T
    (found,) = run(model, listed_feed(dim))
    np.testing.assert_allclose(found, wanted(x, table), rtol=1e-4, atol=1e-4)


def test_a_product_kept_exact_is_in_floats() -> None:
    dim = 16
    products = Products(exact=frozenset([key(dim)]))
    model = rewritten(listed(dim), lower_listed_logits, int8=True, products=products)
    assert "MatMulInteger" not in kinds(model)
    np.testing.assert_allclose(run(model, listed_feed(dim))[0], exact(dim), rtol=1e-4, atol=1e-4)


def test_other_nodes_are_left_to_other_rules() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    model = small_graph([node], {"x": listed_feed(8)["x"]}, ["y"])
    assert list(rewritten(model, lower_listed_logits).graph.node) == [node]
