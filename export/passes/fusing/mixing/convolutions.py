"""Convolutions along a hypothesis, as `lower_convolutions` writes them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_convolutions(groups: Groups, node: NodeProto) -> None:
    """Write to the cache, gather, multiply and add up in one.

    before    x, cache, write index -> TensorScatter -> GatherND -> ... -> ReduceSum -> Reshape
    after     x, cache, write index, ancestors, kernel -> AncestorConvolution -> sums, cache
    """
    chain = groups.chain_before(node.input[0], ("Mul", "Reshape", "Concat", "Unsqueeze"))
    end = groups.chain_after(node.output[0], ("Reshape",))
    if chain is None or end is None:
        return
    product, _, taken, own = chain
    past = groups.chain_before(taken.input[1], ("Mul", "Reshape", "GatherND", "TensorScatter"))
    taps = groups.chain_before(product.input[1], ("Unsqueeze", "Transpose"))
    if past is None or taps is None:
        return
    slots = groups.chain_before(past[2].input[1], ("Reshape", "Max", "Slice"))
    scatter = past[3]
    if slots is None or scatter.input[1] != own.input[0]:
        return
    cache, x, write_index = scatter.input
    inputs = (x, cache, write_index, slots[2].input[0], taps[1].input[0])
    outputs = (end[0].output[0], scatter.output[0])
    inside = groups.between(inputs, outputs)
    groups.replace_rounded(inside, Call("AncestorConvolution", inputs, outputs))
