"""Rows of tables of 8 bits, as `lower_embeddings` writes them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_embeddings(groups: Groups, node: NodeProto) -> None:
    """Look up rows and scale them at once.

    before    ids -> Gather E s8 -> Cast -> Mul
              ids -> Gather scales ----------^
    after     E s8, scales, ids -> GatherDequantize
    """
    rows = groups.producers.get(node.input[0])
    if rows is None or rows.op_type != "Gather" or not groups.used_once(node.output[0]):
        return
    product = groups.users[node.output[0]][0]
    if product.op_type != "Mul" or not groups.used_once(node.input[0]):
        return
    scales = groups.producers.get(product.input[1])
    if scales is None or scales.op_type != "Gather" or scales.input[1] != rows.input[1]:
        return
    inputs = (rows.input[0], scales.input[0], rows.input[1])
    groups.replace([rows, node, scales, product], Call("GatherDequantize", inputs, product.output))
