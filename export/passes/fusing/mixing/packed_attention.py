"""Fuses attention on packed texts together with the operators that unpack and pack them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


def fuse_packed_attention(groups: Groups, node: NodeProto) -> None:
    """Attention on values [B,S,D] that are gathered from packed ones, and packed again.

    before    qkv -> Reshape [3M,D] -> Gather (places of queries) -> Mul c -> Attention -> Reshape
                                    -> Gather (of keys), Gather (of values) -^   ^- mask
                  -> Gather (rows) -> QuantizeLinear
    after     qkv, places, c, mask, rows -> PackedAttentionQuantize -> u8

    If each row has a scale, it is PackedAttentionQuantizeRows, which also gives the scales; without
    rounding it has no Quantize.
    """
    if len(node.input) != 4 or len(node.output) != 1 or not integer_attribute(node, "q_num_heads"):
        return
    query, keys, values, mask = node.input
    same: dict[str, str] = {}
    factor = groups.producers.get(_before_reshape(groups, query, same))
    if factor is None or factor.op_type != "Mul" or groups.number(factor.input[1]) is None:
        return
    starts = (_before_reshape(groups, factor.input[0], same), keys, values)
    gathers = [groups.producers.get(name) for name in starts]
    packed = groups.chain_after(node.output[0], ("Reshape", "Gather"))
    if packed is None or not all(each and each.op_type == "Gather" for each in gathers):
        return
    own, key, value = (each for each in gathers if each is not None)
    apart = groups.producers.get(own.input[0])
    if (
        apart is None
        or apart.op_type != "Reshape"
        or {key.input[0], value.input[0]} != {*apart.output}
    ):
        return
    group = [apart, own, key, value, factor, node, *packed]
    places = (own.input[1], key.input[1], value.input[1])
    qkv = _before_reshape(groups, apart.input[0], same)
    inputs = (qkv, *places, factor.input[1], mask, packed[1].input[1])
    call = Call("PackedAttention", inputs, (packed[1].output[0],), same=same)
    groups.replace_rounded_by_row(group, call)


def _before_reshape(groups: Groups, name: str, same: dict[str, str]) -> str:
    """A value as it was before a Reshape, if that made it; then `same` is true."""
    node = groups.producers.get(name)
    if node is None or node.op_type != "Reshape":
        return name
    before: str = node.input[0]
    same[name] = before
    return before
