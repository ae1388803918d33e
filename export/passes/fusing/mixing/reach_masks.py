"""Fuses the masks of the positions that a layer can reach."""

from __future__ import annotations

import math

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups


def fuse_reach_masks(groups: Groups, node: NodeProto) -> None:
    """The mask `visible`, limited to a number of positions back from the query.

    before    positions - slot positions -> GreaterOrEqual 0 -> And -> Where (0, -inf) -> Add
                                         -> Less reach --------^              visible --^
    after     visible, positions, slot positions -> ReachMask (reach)
    """
    chain = groups.chain_before(node.input[1], ("Where", "And"))
    if chain is None:
        return
    where, both = chain
    lower, upper = (groups.producers.get(name) for name in both.input)
    if lower is None or upper is None:
        return
    if (lower.op_type, upper.op_type) != ("GreaterOrEqual", "Less"):
        return
    if lower.input[0] != upper.input[0] or groups.number(lower.input[1]) != 0:
        return
    difference = groups.producers.get(lower.input[0])
    reach = groups.number(upper.input[1])
    if difference is None or difference.op_type != "Sub" or reach is None:
        return
    if (groups.number(where.input[1]), groups.number(where.input[2])) != (0, -math.inf):
        return
    queries = groups.chain_before(difference.input[0], ("Unsqueeze", "Unsqueeze"))
    slots = groups.chain_before(difference.input[1], ("Unsqueeze",))
    if queries is None or slots is None:
        return
    group = [*queries[::-1], *slots, difference, lower, upper, both, where, node]
    inputs = (node.input[0], queries[1].input[0], slots[0].input[0])
    given = {upper.input[1]: ("reach", int(reach))}
    groups.replace(group, Call("ReachMask", inputs, node.output, given=given))
