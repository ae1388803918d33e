"""Sinusoidal encodings of positions."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


def fuse_sinusoids(groups: Groups, node: NodeProto) -> None:
    """Sines and cosines of positions times frequencies.

    before    positions -> Cast -> Add 1 -> Unsqueeze -> Mul frequencies -> Sin, Cos -> Concat
    after     positions, 1, frequencies -> Sinusoids
    """
    parts = [groups.producers.get(name) for name in node.input]
    kinds = [part.op_type for part in parts if part is not None]
    if kinds != ["Sin", "Cos"] or integer_attribute(node, "axis") != -1:
        return
    sine, cosine = (part for part in parts if part is not None)
    chain = groups.chain_before(sine.input[0], ("Mul", "Unsqueeze", "Add", "Cast"))
    if chain is None or sine.input[0] != cosine.input[0]:
        return
    product, _, add, to_float = chain
    frequencies, offset = product.input[1], add.input[1]
    if not {frequencies, offset} <= groups.constants.keys():
        return
    group = [*chain[::-1], sine, cosine, node]
    inputs = (to_float.input[0], offset, frequencies)
    groups.replace(group, Call("Sinusoids", inputs, node.output))
