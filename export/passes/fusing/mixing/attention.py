"""Fuses attention that skips masked positions, together with writing to the caches before it and
rounding after it."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute
from export.passes.fusing.mixing.caches import (
    HEADS_FIRST,
    KEYS_LAST,
    flat_before_heads,
    has_three_axes,
    turns,
    written_caches,
)


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
    written = written_caches(groups, query, keys, values)
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
    written = written_caches(groups, query, keys, values, axis=1)
    if written is None:
        return
    split, key, value = written
    heads = groups.chain_before(split.input[0], ("Transpose", "Reshape"))
    merged = groups.chain_after(node.output[0], ("Transpose", "Reshape"))
    if heads is None or merged is None or not has_three_axes(groups, merged[1]):
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
    if mask is None or not turns(turned, HEADS_FIRST) or not has_three_axes(groups, merged):
        return
    visible, bias, heads = mask
    query = flat_before_heads(groups, product.input[0], HEADS_FIRST, heads)
    keys = flat_before_heads(groups, product.input[1], KEYS_LAST, heads)
    values = flat_before_heads(groups, sums.input[1], HEADS_FIRST, heads)
    if query is None or keys is None or values is None:
        return
    written = written_caches(groups, query, keys, values)
    if written is None:
        return
    split, key, value = written
    inputs = (split.input[0], key.input[0], value.input[0], key.input[2], visible, bias)
    outputs = (merged.output[0], keys, values)
    group = groups.between(inputs, outputs)
    groups.replace_rounded(group, Call("BiasedTreeAttention", inputs, outputs))


def _mask_with_bias(groups: Groups, name: str) -> tuple[str, str, int] | None:
    """The parts of a mask: what is visible, an input of the graph; a bias [B,H,Q,C], looked up in a
    table [N,H]; and H. None for another mask."""
    mask = groups.producers.get(name)
    if mask is None or mask.op_type != "Add" or mask.input[0] not in groups.inputs:
        return None
    visible, bias = mask.input
    looked_up = groups.chain_before(bias, ("Transpose", "GatherND"))
    if looked_up is None or not turns(looked_up[0], [0, 3, 1, 2]):
        return None
    table = groups.constants.get(looked_up[1].input[0])
    if table is None or len(table.dims) != 2:
        return None
    return visible, bias, int(table.dims[1])
