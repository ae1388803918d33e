"""Products of activations of 16 bits, as `lower_products` writes them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_wide_rounding(groups: Groups, node: NodeProto) -> None:
    """The rounding of rows, and the rounding of the rest that it leaves.

    before    x -> rounding of rows -> u8, scales -> Cast -> Sub 128 -> Mul -> Sub from x
              -> rounding of rows -> u8, scales; both u8 -> Concat; both scales -> Concat
    after     x, zero points, least peak, level -> QuantizeRowsTwice -> u8 [2M,K], scales [2M,1]

    With a Relu before, after which nothing is below zero, it is QuantizeReluRowsTwice.
    """
    ends = [groups.producers.get(name) for name in node.input]
    if len(ends) != 2 or any(end is None or end.op_type != "QuantizeLinear" for end in ends):
        return
    first, rest = (groups.row_rounding(end) for end in ends if end is not None)
    if first is None or rest is None:
        return
    stacked = [user for user in groups.users[rest.outputs[1]] if user.op_type == "Concat"]
    if len(stacked) != 1:
        return
    outputs = (node.output[0], stacked[0].output[0])
    name = "QuantizeRowsTwice" if first.signed else "QuantizeReluRowsTwice"
    group = groups.between([first.rows, first.inputs[0]], outputs)
    groups.replace(group, Call(name, (first.rows, *first.inputs), outputs))


def fuse_wide_products(groups: Groups, node: NodeProto) -> None:
    """A product of rows and of the rest that their rounding left, added up, with its bias.

    before    u8 [2M,K], W s8, scales of rows and columns, zero point -> MatMulIntegerToFloat
              -> Split -> Add -> [M,N] -> Add b
    after     u8, W s8, scales of rows and columns, zero point, b -> BiasedWideProduct

    Without a bias it is WideProduct; with a table that is transposed for it, TiedWideProduct.
    """
    split = groups.chain_after(node.output[0], ("Split",))
    total = groups.chain_after(split[0].output[0], ("Add",)) if split else None
    if split is None or total is None or list(total[0].input) != list(split[0].output):
        return
    group, end, name = [node, *split, *total], total[0].output[0], "WideProduct"
    turned, inputs = groups.weight_of(node)
    group, name = [*turned, *group], f"{'Tied' if turned else ''}{name}"
    bias = groups.bias_after(end)
    if bias is not None:
        group, end = [*group, bias[0]], bias[0].output[0]
        name, inputs = f"Biased{name}", [*inputs, bias[1]]
    groups.replace(group, Call(name, tuple(inputs), (end,)))
