"""Operators that have a kernel on a GPU, and what is said of those that have none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.errors import ExportError
from export.passes.cuda_operators import check_operators, cuda_table
from export.passes.domains import MICROSOFT
from tests.unit.export.passes.small_graph import small_graph

FLOATS = np.ones((2, 3), np.float32)
CONSTANTS = {"weight": np.ones((3, 4), np.float32), "two": np.array(2, np.float32)}

node = helper.make_node


def check(nodes: list[NodeProto], **feed: np.ndarray) -> None:
    kind = helper.np_dtype_to_tensor_dtype(next(iter(feed.values())).dtype)
    model = small_graph(nodes, feed, ["y"], CONSTANTS)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, None))
    check_operators(model)


def test_what_a_gpu_computes_is_accepted() -> None:
    nodes = [
        node("Constant", [], ["shift"], value_float=1.0),
        node("MatMul", ["x", "weight"], ["p"]),
        node("Add", ["p", "shift"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    check(nodes, x=FLOATS)
    check([node("Relu", ["x"], ["y"])], x=FLOATS.astype(np.float16))
    check([node("Concat", ["x", "x", "x"], ["y"], axis=0)], x=FLOATS)


def test_all_that_has_no_kernel_is_named_once_with_its_types() -> None:
    nodes = [
        node("Det", ["x"], ["d"]),
        node("Det", ["x"], ["e"]),
        node("Add", ["d", "e"], ["f"]),
        node("Asinh", ["f"], ["y"]),
    ]
    with pytest.raises(ExportError) as told:
        check(nodes, x=np.ones((2, 2), np.float32))
    message = str(told.value)
    assert f"onnxruntime-gpu {cuda_table()['version']}" in message
    assert message.count("Det of float") == 1
    assert "cannot compute Asinh of float" in message
    assert "--target cpu" in message


def test_a_kernel_is_of_types() -> None:
    relu, numbers = node("Relu", ["x"], ["y"]), np.ones((2, 3), np.int32)
    check([relu], x=FLOATS)
    with pytest.raises(ExportError, match="cannot compute Relu of int32 on a GPU"):
        check([relu], x=numbers)
    check([node("Add", ["x", "x"], ["y"])], x=numbers)


def test_operators_of_others_are_by_the_type_of_their_first_input() -> None:
    for name, types in cuda_table()["others"].items():
        domain, _, kind = name.rpartition(".")
        assert domain == MICROSOFT
        assert kind
        assert types
    unknown = node("NobodysProduct", ["x"], ["y"], domain=MICROSOFT)
    with pytest.raises(
        ExportError, match=r"cannot compute com\.microsoft\.NobodysProduct on a GPU"
    ):
        check([unknown], x=FLOATS)
