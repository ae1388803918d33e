"""Fuses the gate of a feed-forward with what it lets through."""

from __future__ import annotations

from onnx import NodeProto, numpy_helper

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


def fuse_swiglu(groups: Groups, node: NodeProto) -> None:
    """SwiGLU (Shazeer 2020, equation 5) on the two halves of one product, made flat.

    before    x [B,Q,2F] -> Split -> Reshape [M,F] -> Sigmoid, Mul -> Mul
                                  -> Reshape [M,F] -----------------^
    after     x -> Swiglu [M,F]
    """
    silu = groups.chain_after(node.output[0], ("Mul",))
    if silu is not None and set(silu[0].input) == {node.input[0], node.output[0]}:
        _fuse_gate(groups, "Swiglu", node.input[0], silu[0].output[0])


def fuse_geglu(groups: Groups, node: NodeProto) -> None:
    """The same with GELU in its approximation by tanh: GegluTanh."""
    if any(a.name == "approximate" and a.s == b"tanh" for a in node.attribute):
        _fuse_gate(groups, "GegluTanh", node.input[0], node.output[0])


def _fuse_gate(groups: Groups, name: str, gate: str, opened: str) -> None:
    """Fuse a gate, whose activation is `opened`, with what it lets through."""
    weighed = groups.chain_after(opened, ("Mul",))
    through = [each for each in weighed[0].input if each != opened] if weighed else []
    if weighed is None or len(through) != 1:
        return
    one, other = (groups.chain_before(each, ("Reshape", "Split")) for each in (gate, *through))
    if one is None or other is None:
        return
    (first, split), (second, _) = one, other
    if [first.input[0], second.input[0]] != list(split.output) or len(split.input) != 1:
        return
    if integer_attribute(split, "axis") not in (-1, 2):
        return
    x, size = split.input[0], _flat_size(groups, first)
    if size is None or _flat_size(groups, second) != size or groups.last_of_three(x) != 2 * size:
        return
    output = weighed[0].output[0]
    groups.replace(groups.between((x,), (output,)), Call(name, (x,), (output,)))


def _flat_size(groups: Groups, reshape: NodeProto) -> int | None:
    """F of a Reshape to [M,F]; None for another shape."""
    constant = groups.constants.get(reshape.input[1])
    shape = [] if constant is None else numpy_helper.to_array(constant).tolist()
    return shape[1] if len(shape) == 2 and shape[0] == -1 else None
