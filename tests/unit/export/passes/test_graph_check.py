"""Graphs are checked without their weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.passes.graph_check import check_graph, without_weights


def product(columns: int, name: str = "weight") -> onnx.ModelProto:
    """x [1,64] times a weight of 64 rows, then in a shape that a small constant tells."""
    node = helper.make_node("MatMul", ["x", name], ["y"])
    flat = helper.make_node("Reshape", ["y", "shape"], ["z"])
    values = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node, flat],
        "product",
        [values("x", TensorProto.FLOAT, [1, 64])],
        [values("z", TensorProto.FLOAT, [columns])],
        [
            numpy_helper.from_array(np.ones((64, columns), np.float32), "weight"),
            numpy_helper.from_array(np.array([columns]), "shape"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_weights_become_inputs_and_shapes_stay() -> None:
    model = product(512)
    light = without_weights(model)
    assert [tensor.name for tensor in light.graph.initializer] == ["shape"]
    assert [value.name for value in light.graph.input] == ["x", "weight"]
    assert light.ByteSize() < 1000
    assert len(model.graph.initializer) == 2
    check_graph(model, full_check=True)
    assert len(without_weights(product(4)).graph.initializer) == 2


def test_a_wrong_graph_is_still_found() -> None:
    with pytest.raises(onnx.checker.ValidationError, match="missing"):
        check_graph(product(512, "missing"), full_check=False)
    wrong = product(512)
    wrong.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    with pytest.raises(onnx.shape_inference.InferenceError):
        check_graph(wrong, full_check=True)
