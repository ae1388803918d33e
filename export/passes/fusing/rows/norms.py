"""Residuals with the norm and the rounding that follow them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute


def fuse_norms(groups: Groups, node: NodeProto) -> None:
    """A residual, its norm and the norm's rounding.

    before    x -> Add y -> LayerNormalization -> QuantizeLinear -> u8
    after     x, y -> AddNormQuantize -> u8, x + y          the residual goes on (pre-norm)
              x, y -> AddPostNormQuantize -> u8, norm       the norm goes on (post-norm)

    If each row has a scale, it is ...QuantizeRows, which also gives the scales.
    """
    norm = groups.producers.get(node.input[0])
    add = None if norm is None else _residual(groups, norm)
    if norm is None or add is None:
        return
    inputs, total, normed = (*add.input, *norm.input[1:]), add.output[0], norm.output[0]
    rounding = groups.row_rounding(node)
    added: tuple[str, ...]
    rounded: tuple[str, ...]
    if rounding is not None and rounding.signed:
        suffix, readers, group = "QuantizeRows", 2, rounding.group
        added, rounded = rounding.inputs, rounding.outputs
        if _leads_to(groups, normed, added[0]):
            return  # the number of its rows comes from the norm itself
    elif groups.is_static_rounding(node):
        suffix, readers, group = "Quantize", 1, [node]
        added, rounded = tuple(node.input[1:]), (node.output[0],)
    else:
        return
    if normed not in groups.outputs and len(groups.users[normed]) == readers:
        call = Call(f"AddNorm{suffix}", (*inputs, *added), (*rounded, total))
    elif groups.used_once(total):
        call = Call(f"AddPostNorm{suffix}", (*inputs, *added), (*rounded, normed))
    else:
        return
    groups.replace([add, norm, *group], call)


def fuse_post_norms(groups: Groups, node: NodeProto) -> None:
    """A residual and its norm, if nothing else needs the residual.

    before    x -> Add y -> LayerNormalization
    after     x, y -> AddPostNorm
    """
    add = _residual(groups, node)
    if add is None or not groups.used_once(add.output[0]):
        return
    inputs = (*add.input, *node.input[1:])
    groups.replace([add, node], Call("AddPostNorm", inputs, (node.output[0],)))


def fuse_rms_norms(groups: Groups, node: NodeProto) -> None:
    """A residual and its RMS norm.

    before    x -> Add y -> RMSNormalization
    after     x, y -> AddRmsNorm -> norm, x + y
    """
    add = groups.producers.get(node.input[0])
    weight = groups.constants.get(node.input[1])
    if add is None or add.op_type != "Add" or set(add.input) & groups.constants.keys():
        return
    if weight is None or len(weight.dims) != 1 or integer_attribute(node, "axis", -1) != -1:
        return
    inputs = (*add.input, node.input[1])
    groups.replace([add, node], Call("AddRmsNorm", inputs, (node.output[0], add.output[0])))


def _residual(groups: Groups, norm: NodeProto) -> NodeProto | None:
    """The sum of two values that is the input of a norm with gain and bias; None if its input is
    something else."""
    if norm.op_type != "LayerNormalization" or len(norm.input) != 3:
        return None
    add: NodeProto | None = groups.producers.get(norm.input[0])
    if add is None or add.op_type != "Add" or set(add.input) & groups.constants.keys():
        return None
    return add


def _leads_to(groups: Groups, start: str, end: str) -> bool:
    """Whether a value depends on another through the shape of the latter."""
    chain = groups.chain_before(end, ("Expand",))
    shape = groups.producers.get(chain[0].input[1]) if chain else None
    return shape is not None and start in shape.input
