"""Convolutions along a hypothesis in one operator, from what the lowering makes of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from export.passes.fusing.mixing.convolutions import fuse_convolutions
from export.passes.int8.convolutions import lower_convolutions
from tests.unit.export.passes.small_convolution import CONVOLUTION, FEED, convolution
from tests.unit.export.passes.small_graph import check_fused, rewritten

FUSIONS = {"ReduceSum": fuse_convolutions}


@pytest.fixture
def lowered() -> onnx.ModelProto:
    return rewritten(convolution(), lower_convolutions)


def test_a_convolution_writes_gathers_and_adds_up_at_once(lowered: onnx.ModelProto) -> None:
    (call,) = check_fused(lowered, FEED, FUSIONS, ["AncestorConvolution"])
    assert list(call.input) == list(CONVOLUTION.input)
    assert list(call.output) == list(CONVOLUTION.output)


def test_rounding_goes_with_it(lowered: onnx.ModelProto) -> None:
    graph = lowered.graph
    for name, value in (("scale", np.float32(0.02)), ("zero", np.uint8(128))):
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    rounded = onnx.helper.make_node("QuantizeLinear", ["sums", "scale", "zero"], ["u8"])
    graph.node.append(rounded)
    graph.output[0].CopyFrom(onnx.ValueInfoProto(name="u8"))
    (call,) = check_fused(lowered, FEED, FUSIONS, ["AncestorConvolutionQuantize"])
    assert list(call.output) == ["u8", "appended"]


@pytest.mark.parametrize("op_type", ["Slice", "Transpose", "GatherND"])
def test_another_form_stays(lowered: onnx.ModelProto, op_type: str) -> None:
    """Something stands where the group has nothing."""
    graph = lowered.graph
    place = max(i for i, node in enumerate(graph.node) if node.op_type == op_type)
    output = graph.node[place].output[0]
    graph.node[place].output[0] = f"{output}_before"
    graph.node.insert(place + 1, onnx.helper.make_node("Identity", [f"{output}_before"], [output]))
    check_fused(lowered, FEED, FUSIONS, [])
