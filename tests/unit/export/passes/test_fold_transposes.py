"""Transposes of constants, against ONNX's reference evaluation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from export.passes.fold_transposes import fold_transposes

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)


def graph(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    proto = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "W")],
    )
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


@pytest.mark.parametrize("order", [{"perm": [1, 0]}, {}])
def test_a_constant_s_transpose_becomes_a_constant(order: dict[str, list[int]]) -> None:
    model = graph(
        [
            helper.make_node("Transpose", ["W"], ["turned"], **order),
            helper.make_node("MatMul", ["x", "turned"], ["y"]),
        ]
    )
    fold_transposes(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul"]
    (found,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_array_equal(found, X @ WEIGHT.T)


def test_what_a_request_brings_is_transposed_at_every_call() -> None:
    model = graph(
        [
            helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
            helper.make_node("MatMul", ["W", "turned"], ["y"]),
        ]
    )
    nodes = [node.op_type for node in model.graph.node]
    fold_transposes(model)
    assert [node.op_type for node in model.graph.node] == nodes
