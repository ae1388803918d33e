"""Products of rows with weights in fp32, 8 and 16 bits, against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, helper

from export.arithmetic.quantize import Products, StaticRange, quantize_columns, weight_key
from export.passes.int8.embeddings import lower_embeddings
from export.passes.int8.keep_rows_flat import keep_rows_flat
from export.passes.int8.products import lower_products
from tests.unit.export.passes.small_graph import (
    constants_of,
    kinds,
    rewritten,
    run,
    small_graph,
)

GENERATOR = np.random.default_rng(0)
FEED = {"x": GENERATOR.standard_normal((2, 3, 8)).astype(np.float32)}
WEIGHT = GENERATOR.standard_normal((8, 5)).astype(np.float32)
BIAS = GENERATOR.standard_normal(5).astype(np.float32)
CONSTANTS = {"weight": WEIGHT, "bias": BIAS, "cube": np.ones((2, 8, 5), np.float32)}
CONSTANTS["table"] = GENERATOR.standard_normal((3, 5)).astype(np.float32)
AXES = {"x": ("B", "Q", 8), "p": ("B", "Q", 5), "y": ("B", "Q", 5)}
LEVELS, SCALES = quantize_columns(WEIGHT)
KEY = weight_key(LEVELS)
ROUNDED_WEIGHT = LEVELS * SCALES.astype(np.float64)
X = FEED["x"].astype(np.float64)

PRODUCT = helper.make_node("MatMul", ["x", "weight"], ["p"])
ADDED = helper.make_node("Add", ["p", "bias"], ["y"])


def graph(nodes: list[NodeProto], *outputs: str) -> onnx.ModelProto:
    return small_graph(nodes, FEED, outputs, CONSTANTS, AXES)


def rounded(scale: NDArray[np.float64] | float, low: int = -128, high: int = 127) -> np.ndarray:
    return np.clip(np.rint(X / scale), low, high) * scale


@pytest.mark.parametrize("operands", [["p", "bias"], ["bias", "p"]])
def test_floats_with_their_bias_are_one_product_of_flat_rows(operands: list[str]) -> None:
    nodes = [PRODUCT, helper.make_node("Add", operands, ["y"])]
    model = rewritten(graph(nodes, "y"), lower_products)
    assert [kind for kind in kinds(model) if kind in ("MatMul", "Gemm", "Add")] == ["Gemm"]
    np.testing.assert_allclose(run(model, FEED)[0], X @ WEIGHT + BIAS, rtol=1e-4, atol=1e-5)


def test_floats_without_a_bias_are_a_product_of_flat_rows() -> None:
    model = rewritten(graph([PRODUCT], "p"), lower_products, flat_outputs=frozenset(["p"]))
    assert kinds(model) == ["Reshape", "MatMul"]
    wanted = (X @ WEIGHT).reshape(6, 5)
    np.testing.assert_allclose(run(model, FEED)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([PRODUCT, ADDED], ["y", "p"]),
        ([PRODUCT, helper.make_node("Add", ["p", "table"], ["y"])], ["y"]),
        ([PRODUCT, ADDED, helper.make_node("Neg", ["p"], ["z"])], ["y", "z"]),
    ],
    ids=["the product is an output", "no bias", "read by others"],
)
def test_an_addition_stays_where_it_is_not_the_bias_alone(
    nodes: list[NodeProto], outputs: list[str]
) -> None:
    model = rewritten(graph(nodes, *outputs), lower_products)
    assert {"MatMul", "Add"} <= set(kinds(model))
    for found, wanted in zip(run(model, FEED), run(graph(nodes, *outputs), FEED), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_rows_of_8_bits_have_a_scale_each() -> None:
    model = rewritten(graph([PRODUCT, ADDED], "y"), lower_products, int8=True)
    by_row = rounded(np.abs(X).max(-1, keepdims=True) / 127)
    wanted = by_row @ ROUNDED_WEIGHT + BIAS
    np.testing.assert_allclose(run(model, FEED)[0], wanted, rtol=1e-4, atol=1e-5)


def test_rows_of_16_bits_leave_the_error_of_the_weights_alone() -> None:
    model = rewritten(
        graph([PRODUCT, ADDED], "y"), lower_products, int8=True, products=Products(wide=True)
    )
    assert kinds(model).count("MatMulIntegerToFloat") == 1
    wanted = X @ ROUNDED_WEIGHT + BIAS
    np.testing.assert_allclose(run(model, FEED)[0], wanted, atol=1e-3)
    by_row = rounded(np.abs(X).max(-1, keepdims=True) / 127) @ ROUNDED_WEIGHT + BIAS
    assert np.abs(by_row - wanted).max() > 5e-3


@pytest.mark.parametrize(
    ("signed", "wanted"),
    [(True, rounded(1 / 127)), (False, rounded(1 / 255, 0, 255))],
    ids=["signed", "nothing below zero"],
)
def test_a_static_range_is_one_scale_and_cuts_off(signed: bool, wanted: np.ndarray) -> None:
    products = Products({KEY: StaticRange(1.0, signed=signed)})
    model = rewritten(graph([PRODUCT, ADDED], "y"), lower_products, int8=True, products=products)
    assert kinds(model) == ["QuantizeLinear", "MatMulIntegerToFloat"]
    expected = wanted @ ROUNDED_WEIGHT + BIAS
    np.testing.assert_allclose(run(model, FEED)[0], expected, rtol=1e-4, atol=1e-4)


def test_rounding_without_negative_levels_is_a_relu_already() -> None:
    products = Products({KEY: StaticRange(1.0, signed=False)})
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("MatMul", ["r", "weight"], ["p"]),
    ]
    model = small_graph(nodes, FEED, ["p"], CONSTANTS, AXES | {"r": ("B", "Q", 8)})
    made = rewritten(model, lower_products, keep_rows_flat, int8=True, products=products)
    assert kinds(made) == ["QuantizeLinear", "MatMulIntegerToFloat"]
    expected = rounded(1 / 255, 0, 255) @ ROUNDED_WEIGHT
    np.testing.assert_allclose(run(made, FEED)[0], expected, rtol=1e-4, atol=1e-4)


def test_weights_kept_exact_are_floats_in_an_int8_graph() -> None:
    products = Products(exact=frozenset([KEY]))
    model = rewritten(graph([PRODUCT, ADDED], "y"), lower_products, int8=True, products=products)
    assert "Gemm" in kinds(model)
    np.testing.assert_allclose(run(model, FEED)[0], X @ WEIGHT + BIAS, rtol=1e-4, atol=1e-5)


def test_two_products_read_rows_that_are_rounded_once() -> None:
    nodes = [PRODUCT, helper.make_node("MatMul", ["x", "weight"], ["y"])]
    for wide in (False, True):
        model = rewritten(
            graph(nodes, "p", "y"), lower_products, int8=True, products=Products(wide=wide)
        )
        assert kinds(model).count("QuantizeLinear") == 1 + wide
        assert kinds(model).count("MatMulIntegerToFloat") == 2


@pytest.mark.parametrize("wide", [False, True])
def test_a_table_that_is_the_output_as_well_is_kept_once(wide: bool) -> None:
    ids = np.array([[2, 0, 4], [1, 3, 3]])
    nodes = [
        helper.make_node("Gather", ["vectors", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "vectors_turned"], ["y"]),
    ]
    constants = {"vectors": WEIGHT.T.copy(), "vectors_turned": WEIGHT}
    axes = {"ids": ("B", "Q"), "x": ("B", "Q", 8), "y": ("B", "Q", 5)}
    model = small_graph(nodes, {"ids": ids}, ["y"], constants, axes)
    rules = (lower_embeddings, lower_products)
    made = rewritten(model, *rules, int8=True, products=Products(wide=wide))
    assert [tensor.shape for tensor in constants_of(made).values() if tensor.ndim == 2] == [
        (5, 8), (5, 1)
    ]  # fmt: skip
    wanted = ROUNDED_WEIGHT.T[ids] @ ROUNDED_WEIGHT
    np.testing.assert_allclose(run(made, {"ids": ids})[0], wanted, atol=1e-3 if wide else 5e-2)
    kept = rewritten(model, *rules, int8=True, products=Products(exact=frozenset([KEY])))
    assert "Transpose" not in kinds(kept)


@pytest.mark.parametrize("other", ["cube", "given"])
def test_products_that_are_no_rows_times_weights_stay(other: str) -> None:
    feed = FEED | {"given": np.ones((2, 8, 5), np.float32)}
    node = helper.make_node("MatMul", ["x", other], ["p"])
    made = rewritten(small_graph([node], feed, ["p"], CONSTANTS, AXES), lower_products, int8=True)
    assert list(made.graph.node) == [node]
