"""The bias of a product whose rows have a scale each."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.functions import Call
from export.passes.groups import Groups


def fuse_biases(groups: Groups, node: NodeProto) -> None:
    """A product of rows of 8 bits and the bias after it.

    before    u8, W s8, scales of rows and columns, zero point -> MatMulIntegerToFloat -> Add b
    after     u8, W s8, scales of rows and columns, zero point, b -> BiasedProduct
    """
    after = groups.chain_after(node.output[0], ("Add",))
    if after is None or len(node.input) != 5 or node.input[2] in groups.constants:
        return
    biases = [name for name in after[0].input if name in groups.constants]
    if len(biases) != 1 or len(groups.constants[biases[0]].dims) != 1:
        return
    call = Call("BiasedProduct", (*node.input, biases[0]), (after[0].output[0],))
    groups.replace([node, *after], call)
