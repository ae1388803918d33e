"""Biases that become part of a product of rows with a scale each."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.domains import MICROSOFT
from export.passes.fusing.products.biases import fuse_biases
from tests.unit.export.passes.small_graph import check_fused, small_graph

GENERATOR = np.random.default_rng(0)
FEED = {
    "x": GENERATOR.integers(0, 256, (3, 8), dtype=np.uint8),
    "scales": GENERATOR.random((3, 1)).astype(np.float32),
}
CONSTANTS = {
    "weight": GENERATOR.integers(-127, 128, (8, 5), dtype=np.int8),
    "weight_scales": GENERATOR.random(5).astype(np.float32),
    "zero": np.array(128, np.uint8),
    "weight_zero": np.array(0, np.int8),
    "one_scale": np.array(0.02, np.float32),
    "bias": GENERATOR.standard_normal(5).astype(np.float32),
    "bias_of_rows": GENERATOR.standard_normal((3, 1)).astype(np.float32),
}


def product(*more: str, scales: str = "scales") -> NodeProto:
    operands = ["x", "weight", scales, "weight_scales", "zero", *more]
    return helper.make_node("MatMulIntegerToFloat", operands, ["sum"], domain=MICROSOFT)


def test_a_bias_goes_into_the_product_on_either_side() -> None:
    for operands in (["sum", "bias"], ["bias", "sum"]):
        nodes = [product(), helper.make_node("Add", operands, ["y"])]
        model = small_graph(nodes, FEED, ["y"], CONSTANTS)
        (call,) = check_fused(model, FEED, {"MatMulIntegerToFloat": fuse_biases}, ["BiasedProduct"])
        wanted = ["x", "weight", "scales", "weight_scales", "zero", "bias"]
        assert (list(call.input), list(call.output)) == (wanted, ["y"])


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([product(scales="one_scale"), helper.make_node("Add", ["sum", "bias"], ["y"])], ["y"]),
        ([product("weight_zero"), helper.make_node("Add", ["sum", "bias"], ["y"])], ["y"]),
        ([product(), helper.make_node("Add", ["sum", "bias_of_rows"], ["y"])], ["y"]),
        ([product(), helper.make_node("Add", ["sum", "scales"], ["y"])], ["y"]),
        ([product(), helper.make_node("Sub", ["sum", "bias"], ["y"])], ["y"]),
        ([product(), helper.make_node("Add", ["sum", "bias"], ["y"])], ["y", "sum"]),
    ],
    ids=["one scale", "zeros of weights", "a bias of rows", "no constant", "Sub", "sum is read"],
)
def test_another_form_stays(nodes: list[NodeProto], outputs: list[str]) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    check_fused(model, FEED, {"MatMulIntegerToFloat": fuse_biases}, [])
