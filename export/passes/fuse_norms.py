"""Residuals with the norm and the rounding that follow them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.functions import Call
from export.passes.groups import Groups


def fuse_norms(groups: Groups, node: NodeProto) -> None:
    """A residual, its norm and the rounding of that.

    before    x -> Add y -> LayerNormalization -> QuantizeLinear -> u8
    after     x, y -> AddNormQuantize -> u8, x + y
    """
    norm = groups.producers.get(node.input[0])
    if norm is None or norm.op_type != "LayerNormalization" or not groups.is_static_rounding(node):
        return
    add = groups.producers.get(norm.input[0])
    if len(norm.input) != 3 or not groups.used_once(node.input[0]):
        return
    if add is None or add.op_type != "Add" or set(add.input) & groups.constants.keys():
        return
    inputs = (*add.input, *norm.input[1:], *node.input[1:])
    outputs = (node.output[0], add.output[0])
    groups.replace([add, norm, node], Call("AddNormQuantize", inputs, outputs))
