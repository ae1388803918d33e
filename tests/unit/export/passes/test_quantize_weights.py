"""Products in fp16 that read weights in blocks of int8."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from export.arithmetic.weight_only import BITS, BLOCK, quantize_blocks
from export.passes.domains import MICROSOFT
from export.passes.quantize_weights import quantize_weights
from tests.unit.export.passes.small_graph import constants_of, kinds, run, small_graph

GENERATOR = np.random.default_rng(0)
INPUTS, OUTPUTS = 2 * BLOCK, 6
FEED = {"x": GENERATOR.standard_normal((3, INPUTS)).astype(np.float16)}
WEIGHT = (GENERATOR.standard_normal((INPUTS, OUTPUTS)) * INPUTS**-0.5).astype(np.float16)
CONSTANTS = {
    "weight": WEIGHT,
    "bias": GENERATOR.standard_normal(OUTPUTS).astype(np.float16),
    "odd": np.ones((INPUTS + 1, OUTPUTS), np.float16),
    "float": WEIGHT.astype(np.float32),
    "gain": np.ones(OUTPUTS, np.float16),
}
AXES = {"x": (3, INPUTS)}

node = helper.make_node


def graph(nodes: list[NodeProto], *outputs: str) -> onnx.ModelProto:
    return small_graph(nodes, FEED, outputs, CONSTANTS)


def rounded() -> np.ndarray:
    """The weights that blocks stand for."""
    levels_NGW, scale_NG = quantize_blocks(WEIGHT)
    signed = levels_NGW.astype(np.float64) - 2 ** (BITS - 1)
    return np.asarray((signed * scale_NG.astype(np.float64)[..., None]).reshape(OUTPUTS, -1).T)


@pytest.mark.parametrize(
    ("product", "after", "bias"),
    [
        (node("MatMul", ["x", "weight"], ["y"]), [], 0.0),
        (node("Gemm", ["x", "weight", "bias"], ["y"]), ["Add"], CONSTANTS["bias"]),
    ],
    ids=["MatMul", "Gemm"],
)
def test_products_read_blocks_and_add_their_bias_after(
    product: NodeProto, after: list[str], bias: np.ndarray
) -> None:
    made = quantize_weights(graph([product], "y"))
    assert kinds(made) == ["MatMulNBits", *after]
    assert "weight" not in constants_of(made)
    wanted = FEED["x"].astype(np.float64) @ rounded() + bias
    np.testing.assert_allclose(run(made, FEED)[0], wanted, atol=0.02)


def test_a_weight_that_two_products_read_is_quantised_once() -> None:
    nodes = [node("MatMul", ["x", "weight"], ["y"]), node("MatMul", ["x", "weight"], ["z"])]
    made = quantize_weights(graph(nodes, "y", "z"))
    assert constants_of(made).keys() == {"weight_levels", "weight_scales"}
    assert [entry.domain for entry in made.opset_import].count(MICROSOFT) == 1


@pytest.mark.parametrize(
    "product",
    [
        node("Gemm", ["x", "weight", "bias"], ["y"], alpha=0.5),
        node("MatMul", ["long", "odd"], ["y"]),
        node("MatMul", ["x_float", "float"], ["y"]),
        node("Mul", ["short", "gain"], ["y"]),
        node("Neg", ["x"], ["y"]),
    ],
    ids=["a factor", "no whole blocks", "fp32", "no product", "one input"],
)
def test_what_is_no_plain_product_in_fp16_stays(product: NodeProto) -> None:
    feed = FEED | {
        "long": np.ones((3, INPUTS + 1), np.float16),
        "x_float": FEED["x"].astype(np.float32),
        "short": np.ones((3, OUTPUTS), np.float16),
    }
    made = quantize_weights(small_graph([product], feed, ["y"], CONSTANTS))
    assert list(made.graph.node) == [product]
    assert constants_of(made).keys() == {name for name in product.input if name in CONSTANTS}
