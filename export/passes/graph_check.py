"""Checks of graphs of any size: ONNX's own write the whole graph, and protobuf less than 2 GiB."""

from __future__ import annotations

import onnx
from onnx import helper

_MOST_BYTES = 1 << 16
"""Largest size of a constant that may hold a shape; larger ones are weights."""


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers are inputs of the same type and shape."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph, source = light.graph, model.graph
    graph.name = source.name
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    for tensor in source.initializer:
        if tensor.ByteSize() <= _MOST_BYTES:
            graph.initializer.append(tensor)
        else:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def check_graph(model: onnx.ModelProto, *, full_check: bool) -> None:
    """Run ONNX's check on all but the weights; raises onnx.checker.ValidationError or, with
    `full_check`, an InferenceError."""
    onnx.checker.check_model(without_weights(model), full_check=full_check)
