"""Fuses rounding to 8 bits with a scale for each row, also of the output of GELU."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_row_rounding(groups: Groups, node: NodeProto) -> None:
    """The scales of rows and the rounding by them; with GELU, if its output has no other use.

    before    x -> Gelu -> Abs -> ReduceMax -> Max -> Mul -> QuantizeLinear -> u8
                                                          -> Unsqueeze -> scales
    after     x, zero points, least peak, level -> GeluQuantizeRows -> u8, scales

    Without GELU it is QuantizeRows. With a Relu in its place it is QuantizeReluRows, which has no
    Abs because nothing is below zero.
    """
    rounding = groups.row_rounding(node)
    if rounding is None:
        return
    group, rows = rounding.group, rounding.rows
    name = "QuantizeRows" if rounding.signed else "QuantizeReluRows"
    before = groups.producers.get(rows)
    alone = rounding.signed and len(groups.users[rows]) == 2
    if alone and before is not None and _is_exact_gelu(before):
        group, name, rows = [before, *group], "GeluQuantizeRows", before.input[0]
    groups.replace(group, Call(name, (rows, *rounding.inputs), rounding.outputs))


def fuse_gelu_rounding(groups: Groups, node: NodeProto) -> None:
    """GELU whose only use is a rounding by constants.

    before    x -> Gelu -> QuantizeLinear -> u8
    after     x -> GeluQuantize -> u8
    """
    rounding = groups.chain_after(node.output[0], ("QuantizeLinear",))
    if rounding is None or not groups.is_static_rounding(rounding[0]) or not _is_exact_gelu(node):
        return
    inputs = (node.input[0], *rounding[0].input[1:])
    groups.replace([node, *rounding], Call("GeluQuantize", inputs, (rounding[0].output[0],)))


def _is_exact_gelu(node: NodeProto) -> bool:
    return node.op_type == "Gelu" and all(
        attribute.s == b"none" for attribute in node.attribute if attribute.name == "approximate"
    )
