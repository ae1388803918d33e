"""Fuses the rotation of queries and keys by their positions."""

from __future__ import annotations

from onnx import NodeProto, numpy_helper

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


def fuse_rotations(groups: Groups, node: NodeProto) -> None:
    """Heads whose whole width is turned (`training.models.sublayers.positions.RotaryPositions`).

    before    x [B,Q,P] -> Split -> Reshape [B,Q,N,2,W] -> first, second
              first * cos - second * sin -> Unsqueeze -> Concat -> Reshape -> Concat
              second * cos + first * sin -> Unsqueeze --^                       ^
                        -> values ----------------------------------------------/
    after     x, cos, sin, the sizes of the two parts, three shapes -> Rotary [B,Q,P]

    The shapes are those of the reshapes to pairs, of the sums and to [B,Q,*]. They depend on B and
    Q, and a body must not read these from the graph. The kernel reads only W in the first.
    """
    merged = groups.chain_before(node.input[0], ("Reshape", "Concat"))
    if merged is None or len(node.input) != 2 or len(merged[1].input) != 2:
        return
    if integer_attribute(node, "axis") not in (-1, 2) or integer_attribute(merged[1], "axis") != -2:
        return
    turned, other = (_turned(groups, name) for name in merged[1].input)
    if turned is None:
        return
    kind, first, cos, second, sin = turned
    if kind != "Sub" or other != ("Add", second, cos, first, sin):
        return
    if not _are_angles(groups, cos, sin):
        return
    half = _half(groups, first)
    if half is None or half[1] != 0 or _half(groups, second) != (half[0], 1):
        return
    split = groups.chain_before(half[0], ("Reshape", "Split"))
    if split is None or list(split[1].output) != [split[0].input[0], node.input[1]]:
        return
    x, *sizes = split[1].input
    if not sizes or sizes[0] not in groups.constants:
        return
    if groups.last_of_three(x) is None and not _is_projection(groups, node.output[0]):
        return
    apart = groups.chain_before(merged[1].input[0], ("Unsqueeze", "Reshape"))
    if apart is None:
        return
    shapes = [reshape.input[1] for reshape in (split[0], apart[1], merged[0])]
    inputs, outputs = (x, cos, sin, sizes[0], *shapes), (node.output[0],)
    groups.replace(groups.between(inputs, outputs), Call("Rotary", inputs, outputs))


def _are_angles(groups: Groups, cos: str, sin: str) -> bool:
    """Whether values are cosines and sines [B,Q,1,W] of the same angles [B,Q,W], or the first
    numbers of these."""
    found = []
    for name, kind in ((cos, "Cos"), (sin, "Sin")):
        node = groups.producers.get(name)
        if node is not None and node.op_type == "Slice":
            name = node.input[0]
        chain = groups.chain_before(name, (kind, "Unsqueeze"))
        found.append(chain[1] if chain else None)
    return found[0] is not None and found[0] == found[1] and groups.axis_of(found[0]) == 2


def _is_projection(groups: Groups, name: str) -> bool:
    """Whether a value is only what attention takes queries, keys and values from, [B,Q,P]."""
    kinds = [user.op_type for user in groups.users[name]]
    return bool(kinds) and all(kind.startswith("TreeAttention") for kind in kinds)


def _turned(groups: Groups, name: str) -> tuple[str, str, str, str, str] | None:
    """What an unsqueezed sum or difference is made of: its operator, and the two features, each
    with what it is multiplied by."""
    end = groups.producers.get(name)
    if end is None or end.op_type != "Unsqueeze" or groups.axis_of(end) != -2:
        return None
    sums = groups.producers.get(groups.before_reshapes(end.input[0]))
    if sums is None or sums.op_type not in ("Add", "Sub"):
        return None
    products = [groups.producers.get(groups.before_reshapes(each)) for each in sums.input]
    if any(each is None or each.op_type != "Mul" for each in products):
        return None
    (first, cos), (second, sin) = (each.input for each in products if each is not None)
    return sums.op_type, first, cos, second, sin


def _half(groups: Groups, name: str) -> tuple[str, int] | None:
    """The pairs of which a value is one half, and which half it is."""
    chain = groups.chain_before(name, ("Squeeze", "Slice"))
    if chain is None or len(chain[1].input) != 4 or groups.axis_of(chain[0]) != -2:
        return None
    constants = [groups.constants.get(each) for each in chain[1].input[1:]]
    if any(each is None or list(each.dims) != [1] for each in constants):
        return None
    begin, end, axis = (int(numpy_helper.to_array(each)[0]) for each in constants if each)
    return (chain[1].input[0], begin) if (axis, end) == (-2, begin + 1) else None
