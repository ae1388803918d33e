"""Where a step may have one query a sentence."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from export.graphs.first_step import name_beams_apart
from serving.bundle.graph import Graph, Tensor
from tests.unit.export.passes.small_graph import small_graph

FEED = {
    "token_ids": np.ones((2, 3), np.float32),
    "scores": np.ones((2, 3), np.float32),
    "ancestors": np.ones((2, 3), np.float32),
}
CONSTANTS = {"weight": np.ones((3, 3), np.float32)}

node = helper.make_node


def described() -> Graph:
    inputs = (
        Tensor(name="token_ids", dtype="int64", axes=("B", "Q"), role="token"),
        Tensor(name="scores", dtype="float32", axes=("B", "K"), role="score"),
    )
    outputs = (Tensor(name="y", dtype="float32", axes=("B", "N"), role="candidate_score"),)
    return Graph(file="step.onnx", opset=24, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("made", "apart"),
    [
        (node("MatMul", ["token_ids", "weight"], ["y"]), True),
        (node("Relu", ["token_ids"], ["y"]), True),
        (node("TreeAttention", ["token_ids"], ["y"], domain="macaron"), True),
        (node("MatMul", ["token_ids", "scores"], ["y"]), False),
        (node("Attention", ["token_ids", "scores", "scores"], ["y"]), False),
        (node("Einsum", ["token_ids"], ["y"], equation="ij->ji"), False),
        (node("Slice", ["ancestors", "scores"], ["y"]), False),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else str(value),
)
def test_scores_have_an_axis_of_their_own_where_a_query_is_treated_alone(
    made: NodeProto, apart: bool
) -> None:
    model = small_graph([made], FEED, ["y"], CONSTANTS)
    function = helper.make_function(
        "macaron", "TreeAttention", ["a"], ["b"], [node("Identity", ["a"], ["b"])],
        [helper.make_opsetid("", 24)],
    )  # fmt: skip
    model.functions.append(function)
    found = name_beams_apart(described(), model)
    axes = {tensor.name: tensor.axes for tensor in found.inputs}
    assert axes == {"token_ids": ("B", "Q"), "scores": ("B", "K") if apart else ("B", "Q")}
    assert found.outputs == described().outputs


def test_a_function_that_reads_ancestors_treats_each_query_alone() -> None:
    model = small_graph(
        [node("AncestorConvolution", ["ancestors"], ["y"], domain="macaron")], FEED, ["y"]
    )
    assert name_beams_apart(described(), model).inputs[1].axes == ("B", "Q")
    model.functions.append(onnx.FunctionProto(name="AncestorConvolution", domain="macaron"))
    assert name_beams_apart(described(), model) == described()
