"""Fuses attention that skips masked positions, together with writing to the caches before it and
rounding after it."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


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
    if heads is None or merged is None:
        return
    shape = groups.constants.get(merged[1].input[1])
    if shape is None or list(shape.dims) != [3]:  # the kernel gives [B,Q,D]
        return
    group = [*heads[::-1], *written, node, *merged]
    inputs = (heads[1].input[0], key.input[0], value.input[0], key.input[2], mask)
    outputs = (merged[1].output[0], keys, values)
    groups.replace_rounded(group, Call("TreeAttentionByHead", inputs, outputs))


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
