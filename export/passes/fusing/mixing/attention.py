"""Fuses attention that skips masked positions, together with writing to the caches before it and
rounding after it."""

from __future__ import annotations

from onnx import NodeProto, numpy_helper

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute

_HEADS_FIRST = [0, 2, 1, 3]
"""The order of axes that makes [B,H,*,E] of [B,*,H,E], and the reverse."""
_KEYS_LAST = [0, 2, 3, 1]
"""That which makes [B,H,E,C] of [B,C,H,E]."""


def fuse_attention(groups: Groups, node: NodeProto) -> None:
    """Attention on values [B,Q,D].

        before    projection -> Split -> q ---------------------------> Attention -> QuantizeLinear
                                      -> k, v -> TensorScatter (caches) -^   ^- mask
        after     projection, caches, write index, mask -> TreeAttentionQuantize -> u8, caches

    Without caches of its own it is MaskedAttention, without rounding it has no Quantize.
    """
    if len(node.input) != 4 or len(node.output) != 1 or not integer_attribute(node, "q_num_heads"):
        return
    query, keys, values, mask = node.input
    written = _written(groups, query, keys, values)
    if written is None:
        call = Call("MaskedAttention", (query, keys, values, mask), (node.output[0],))
        groups.replace_rounded([node], call)
        return
    split, key, value = written
    inputs = (split.input[0], key.input[0], value.input[0], key.input[2], mask)
    call = Call("TreeAttention", inputs, (node.output[0], keys, values))
    groups.replace_rounded([*written, node], call)


def fuse_attention_by_head(groups: Groups, node: NodeProto) -> None:
    """The same for caches that are laid out by head [B,H,C,E], as are the new keys and values.

    before    projection -> Reshape -> Transpose -> Split -> ... -> Attention -> Transpose
                  -> Reshape [B,Q,D] -> QuantizeLinear
    after     projection, caches, write index, mask -> TreeAttentionByHeadQuantize
    """
    if len(node.input) != 4 or len(node.output) != 1 or integer_attribute(node, "q_num_heads"):
        return
    query, keys, values, mask = node.input
    written = _written(groups, query, keys, values)
    if written is None:
        return
    split, key, value = written
    heads = groups.chain_before(split.input[0], ("Transpose", "Reshape"))
    merged = groups.chain_after(node.output[0], ("Transpose", "Reshape"))
    if heads is None or merged is None or not _has_three_axes(groups, merged[1]):
        return
    group = [*heads[::-1], *written, node, *merged]
    inputs = (heads[1].input[0], key.input[0], value.input[0], key.input[2], mask)
    outputs = (merged[1].output[0], keys, values)
    groups.replace_rounded(group, Call("TreeAttentionByHead", inputs, outputs))


def fuse_biased_attention(groups: Groups, node: NodeProto) -> None:
    """Attention on caches [B,C,D] whose scores get a bias of each head, written out.

        before    projection -> Split -> q -> Reshape -> Transpose -> MatMul -> Add -> Softmax
                      -> k, v -> TensorScatter (caches) -> Reshape -> Transpose -^
                  visible [B,1,Q,C] and bias [B,H,Q,C] -> Add ----------------^
                  Softmax -> MatMul with the values -> Transpose -> Reshape [B,Q,D]
                      -> QuantizeLinear
        after     projection, caches, write index, visible, bias -> BiasedTreeAttentionQuantize

    The bias must come from a table with a column for each head: the kernel counts heads by it.
    """
    scores = groups.chain_before(node.input[0], ("Add", "MatMul"))
    weighed = groups.chain_after(node.output[0], ("MatMul", "Transpose", "Reshape"))
    if scores is None or weighed is None or integer_attribute(node, "axis", -1) not in (-1, 3):
        return
    (add, product), (sums, turned, merged) = scores, weighed
    mask = _mask_with_bias(groups, add.input[1])
    if mask is None or not _turns(turned, _HEADS_FIRST) or not _has_three_axes(groups, merged):
        return
    visible, bias, heads = mask
    query = _flat(groups, product.input[0], _HEADS_FIRST, heads)
    keys = _flat(groups, product.input[1], _KEYS_LAST, heads)
    values = _flat(groups, sums.input[1], _HEADS_FIRST, heads)
    if query is None or keys is None or values is None:
        return
    written = _written(groups, query, keys, values)
    if written is None:
        return
    split, key, value = written
    inputs = (split.input[0], key.input[0], value.input[0], key.input[2], visible, bias)
    outputs = (merged.output[0], keys, values)
    group = groups.between(inputs, outputs)
    groups.replace_rounded(group, Call("BiasedTreeAttention", inputs, outputs))


def _has_three_axes(groups: Groups, reshape: NodeProto) -> bool:
    """Whether a Reshape gives [B,Q,D], as kernels do."""
    shape = groups.constants.get(reshape.input[1])
    return shape is not None and list(shape.dims) == [3]


def _turns(node: NodeProto, axes: list[int]) -> bool:
    """Whether a Transpose has this order of axes."""
    return any(a.name == "perm" and list(a.ints) == axes for a in node.attribute)


def _flat(groups: Groups, name: str, axes: list[int], heads: int) -> str | None:
    """The value [B,*,D] that is divided into so many heads and turned; None if it is not."""
    turned = groups.chain_before(name, ("Transpose", "Reshape"))
    if turned is None or not _turns(turned[0], axes):
        return None
    shape = groups.constants.get(turned[1].input[1])
    if shape is None or numpy_helper.to_array(shape).tolist()[:-1] != [0, 0, heads]:
        return None
    return str(turned[1].input[0])


def _mask_with_bias(groups: Groups, name: str) -> tuple[str, str, int] | None:
    """The parts of a mask: what is visible, an input of the graph; a bias [B,H,Q,C], looked up in a
    table [N,H]; and H. None for another mask."""
    mask = groups.producers.get(name)
    if mask is None or mask.op_type != "Add" or mask.input[0] not in groups.inputs:
        return None
    visible, bias = mask.input
    looked_up = groups.chain_before(bias, ("Transpose", "GatherND"))
    if looked_up is None or not _turns(looked_up[0], [0, 3, 1, 2]):
        return None
    table = groups.constants.get(looked_up[1].input[0])
    if table is None or len(table.dims) != 2:
        return None
    return visible, bias, int(table.dims[1])


def _written(
    groups: Groups, query: str, keys: str, values: str
) -> tuple[NodeProto, NodeProto, NodeProto] | None:
    """The split of a projection and the two nodes that write its parts to the caches, if query,
    keys and values come from these."""
    split, key, value = (groups.producers.get(name) for name in (query, keys, values))
    if split is None or key is None or value is None:
        return None
    kinds = (split.op_type, key.op_type, value.op_type)
    if kinds != ("Split", "TensorScatter", "TensorScatter"):
        return None
    if [query, key.input[1], value.input[1]] != list(split.output):
        return None
    if key.input[2] != value.input[2] or not all(map(groups.used_once, split.output)):
        return None
    return split, key, value
