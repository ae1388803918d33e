"""Fuses products of 8-bit rows with the bias that is added to them, or with a transposed table."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_biases(groups: Groups, node: NodeProto) -> None:
    """A product of 8-bit rows and the bias after it.

    before    u8, W s8, scales of rows and columns, zero point -> MatMulIntegerToFloat -> Add b
    after     u8, W s8, scales of rows and columns, zero point, b -> BiasedProduct

    With a table that is transposed for it, the result is BiasedTiedProduct.
    """
    bias = groups.bias_after(node.output[0])
    if bias is None or len(node.input) != 5 or node.input[2] in groups.constants:
        return
    turned, inputs = groups.weight_of(node)
    name = "BiasedTiedProduct" if turned else "BiasedProduct"
    call = Call(name, (*inputs, bias[1]), (bias[0].output[0],))
    groups.replace([*turned, node, bias[0]], call)


def fuse_tied_products(groups: Groups, node: NodeProto) -> None:
    """A product with a table in which ids are also looked up.

    before    table s8 -> Transpose -> W; u8, W, scales of rows and columns, zero point
              -> MatMulIntegerToFloat
    after     u8, table, scales of rows and columns, zero point -> TiedProduct

    With the operator's own bias it is BiasedTiedProduct.
    """
    turned, inputs = groups.weight_of(node)
    if not turned:
        return
    given = [name for name in inputs if name]  # weights have no zero point of their own
    name = "BiasedTiedProduct" if len(given) > 5 else "TiedProduct"
    groups.replace([*turned, node], Call(name, tuple(given), (node.output[0],)))
