"""Operators that treat rows alone work on flat values, and compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from export.arithmetic.quantize import Products, StaticRange
from export.passes.int8.keep_rows_flat import drop_reshapes, keep_rows_flat
from export.passes.int8.products import lower_products
from tests.unit.export.passes.small_graph import kinds, rewritten, run, small_graph

GENERATOR = np.random.default_rng(0)
FEED = {"x": GENERATOR.standard_normal((2, 3, 4)).astype(np.float32)}
CONSTANTS = {
    "up": GENERATOR.standard_normal((4, 6)).astype(np.float32),
    "down": GENERATOR.standard_normal((6, 4)).astype(np.float32),
    "gain": GENERATOR.random(6).astype(np.float32),
    "bias": GENERATOR.random(6).astype(np.float32),
    "by_place": GENERATOR.random((3, 6)).astype(np.float32),
    "in_two": np.array([0, 0, 2, -1]),
    "in_rows": np.array([-1, 3, 1, 6]),
}
AXES = {"x": ("B", "Q", 4), "wide": ("B", "Q", 6), "kept": ("B", "Q", 6), "y": ("B", "Q", 4)}
RULES = (lower_products, keep_rows_flat, drop_reshapes)

node = helper.make_node
UP, DOWN = node("MatMul", ["x", "up"], ["wide"]), node("MatMul", ["kept", "down"], ["y"])


def graph(*nodes: NodeProto) -> onnx.ModelProto:
    return small_graph([UP, *nodes, DOWN], FEED, ["y"], CONSTANTS, AXES)


def check_same(model: onnx.ModelProto, made: onnx.ModelProto) -> None:
    for found, wanted in zip(run(made, FEED), run(model, FEED), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "between",
    [
        node("Relu", ["wide"], ["kept"]),
        node("Gelu", ["wide"], ["kept"]),
        node("Tanh", ["wide"], ["kept"]),
        node("Mul", ["wide", "gain"], ["kept"]),
        node("Add", ["wide", "wide"], ["kept"]),
        node("LogSoftmax", ["wide"], ["kept"], axis=2),
        node("LayerNormalization", ["wide", "gain", "bias"], ["kept"], axis=2),
        node("RMSNormalization", ["wide", "gain"], ["kept"], axis=-1),
    ],
    ids=lambda each: each.op_type,
)
def test_nothing_is_reshaped_between_two_products(between: NodeProto) -> None:
    model = graph(between)
    made = rewritten(model, *RULES)
    assert kinds(made).count("Reshape") == 2
    check_same(model, made)


@pytest.mark.parametrize(
    "between",
    [
        node("Softmax", ["wide"], ["kept"], axis=1),
        node("Add", ["wide", "by_place"], ["kept"]),
    ],
    ids=["another operator", "a constant for each place"],
)
def test_what_reads_more_than_a_row_reads_it_in_its_own_shape(between: NodeProto) -> None:
    model = graph(between)
    made = rewritten(model, *RULES)
    assert kinds(made).count("Reshape") == 4
    check_same(model, made)


def test_what_relu_gave_is_known_to_need_no_sign() -> None:
    made = rewritten(graph(node("Relu", ["wide"], ["kept"])), *RULES, int8=True)
    assert kinds(made).count("Abs") == 1
    made = rewritten(graph(node("Tanh", ["wide"], ["kept"])), *RULES, int8=True)
    assert kinds(made).count("Abs") == 2


def test_static_activations_keep_their_shape() -> None:
    products = Products({b"another": StaticRange(1.0, signed=True)})
    model = small_graph([node("Relu", ["x"], ["y"])], FEED, ["y"], axes=AXES)
    assert kinds(rewritten(model, *RULES, products=products)) == ["Relu"]
    assert kinds(rewritten(model, *RULES)).count("Reshape") == 2


def reshaped(shape: str, axes: tuple[str | int, ...]) -> onnx.ModelProto:
    nodes = [
        UP,
        node("Reshape", ["wide", shape], ["other"]),
        node("Relu", ["other"], ["z"]),
    ]
    return small_graph(nodes, FEED, ["z"], CONSTANTS, AXES | {"other": axes, "z": axes})


def test_a_reshape_of_rows_is_forgotten() -> None:
    model = reshaped("in_rows", ("B", "Q", 1, 6))
    made = rewritten(model, *RULES)
    assert [kind for kind in kinds(made) if kind in ("Reshape", "Relu")] == [
        "Reshape",
        "Relu",
        "Reshape",
    ]
    check_same(model, made)


def test_a_reshape_of_the_last_axis_stays() -> None:
    model = reshaped("in_two", ("B", "Q", 2, 3))
    made = rewritten(model, *RULES)
    assert kinds(made).count("Reshape") > 3
    check_same(model, made)
