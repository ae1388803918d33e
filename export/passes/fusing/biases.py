"""The bias of a product whose rows have a scale each."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_biases(groups: Groups, node: NodeProto) -> None:
    """A product of rows of 8 bits and the bias after it.

    before    u8, W s8, scales of rows and columns, zero point -> MatMulIntegerToFloat -> Add b
    after     u8, W s8, scales of rows and columns, zero point, b -> BiasedProduct
    """
    bias = groups.bias_after(node.output[0])
    if bias is None or len(node.input) != 5 or node.input[2] in groups.constants:
        return
    call = Call("BiasedProduct", (*node.input, bias[1]), (bias[0].output[0],))
    groups.replace([node, bias[0]], call)
