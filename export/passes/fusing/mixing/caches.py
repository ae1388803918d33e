"""What attention on caches has around it: heads that are divided and turned, and new keys and
values that are written."""

from __future__ import annotations

from onnx import NodeProto, numpy_helper

from export.passes.fusing.groups import Groups, integer_attribute

HEADS_FIRST = [0, 2, 1, 3]
"""The order of axes that makes [B,H,*,E] of [B,*,H,E], and the reverse."""
KEYS_LAST = [0, 2, 3, 1]
"""That which makes [B,H,E,C] of [B,C,H,E]."""


def has_three_axes(groups: Groups, reshape: NodeProto) -> bool:
    """Whether a Reshape gives [B,Q,D], as kernels do: B and Q stay."""
    shape = groups.constants.get(reshape.input[1])
    return shape is not None and numpy_helper.to_array(shape).tolist()[:-1] == [0, 0]


def turns(node: NodeProto, axes: list[int]) -> bool:
    """Whether a Transpose has this order of axes."""
    return any(a.name == "perm" and list(a.ints) == axes for a in node.attribute)


def flat_before_heads(groups: Groups, name: str, axes: list[int], heads: int) -> str | None:
    """The value [B,*,D] that is divided into so many heads and turned; None if it is not."""
    turned = groups.chain_before(name, ("Transpose", "Reshape"))
    if turned is None or not turns(turned[0], axes):
        return None
    shape = groups.constants.get(turned[1].input[1])
    if shape is None or numpy_helper.to_array(shape).tolist()[:-1] != [0, 0, heads]:
        return None
    return str(turned[1].input[0])


def written_caches(
    groups: Groups, query: str, keys: str, values: str, *, axis: int = 2
) -> tuple[NodeProto, NodeProto, NodeProto] | None:
    """The split of a projection along an axis, and the two nodes that write its parts to the
    caches, if query, keys and values come from these."""
    split, key, value = (groups.producers.get(name) for name in (query, keys, values))
    if split is None or key is None or value is None:
        return None
    kinds = (split.op_type, key.op_type, value.op_type)
    if kinds != ("Split", "TensorScatter", "TensorScatter"):
        return None
    if integer_attribute(split, "axis") != axis or not _in_order(key) or not _in_order(value):
        return None
    if [query, key.input[1], value.input[1]] != list(split.output):
        return None
    if key.input[2] != value.input[2] or not all(map(groups.used_once, split.output)):
        return None
    return split, key, value


def _in_order(node: NodeProto) -> bool:
    """Whether a TensorScatter writes from given places on, and never over the end."""
    return len(node.input) == 3 and not any(a.s == b"circular" for a in node.attribute)
