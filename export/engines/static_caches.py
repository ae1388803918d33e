"""Adapts graphs to TensorRT: caches with four axes and a fixed number of slots, and attention
without an attribute that its parser refuses."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from export.passes.dataflow import users_by_value

_AXIS = "cache_axis"


def static_caches(model: onnx.ModelProto, names: Collection[str], capacity: int) -> None:
    """Give these caches, and the outputs that append to them, `capacity` slots.

        before    cache [B,C,D], new [B,Q,D] -> TensorScatter -> [B,C,D] -> Attention
        after     new -> Unsqueeze ---v
                  cache [B,1,64,D] -> TensorScatter -> [B,1,64,D] -> Squeeze -> Attention

    Both have the same bytes. Caches by head, [B,H,C,E], already have four axes. Changes the model.
    """
    graph = model.graph
    users = users_by_value(graph)
    nodes: list[NodeProto] = []
    appended: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for node in list(graph.node):
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        if node.op_type != "TensorScatter" or node.input[0] not in names:
            nodes.append(node)
            continue
        cache, output = node.input[0], node.output[0]
        appended[output] = cache
        (axis,) = [a for a in node.attribute if a.name == "axis"]
        if axis.i != 1:  # by head
            nodes.append(node)
            continue
        axis.i = 2
        lifted, renamed[output] = f"{output}_new", f"{output}_flat"
        nodes.append(helper.make_node("Unsqueeze", [node.input[1], _AXIS], [lifted]))
        node.input[1] = lifted
        nodes.append(node)
        if users[output]:
            nodes.append(helper.make_node("Squeeze", [output, _AXIS], [renamed[output]]))
    if renamed:
        graph.initializer.append(numpy_helper.from_array(np.array([1]), _AXIS))
    for value in (*graph.input, *graph.output):
        if value.name in names or value.name in appended:
            _fix(value, capacity)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]


def drop_softmax_precision(model: onnx.ModelProto) -> None:
    """Drop the attribute that requests an fp32 softmax: TensorRT's fused kernels use fp32 anyway,
    and its parser refuses the attribute. Changes the model."""
    for node in model.graph.node:
        if node.op_type == "Attention":
            kept = [a for a in node.attribute if a.name != "softmax_precision"]
            del node.attribute[:]
            node.attribute.extend(kept)


def _fix(value: onnx.ValueInfoProto, capacity: int) -> None:
    """Give a cache's description four axes, with `capacity` as the size of the third."""
    shape = value.type.tensor_type.shape
    axes = [dim.dim_param or dim.dim_value for dim in shape.dim]
    if len(axes) == 3:
        axes.insert(1, 1)
    axes[2] = capacity
    element = value.type.tensor_type.elem_type
    value.type.CopyFrom(helper.make_tensor_type_proto(element, axes))
