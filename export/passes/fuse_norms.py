"""Residuals with the norm and the rounding that follow them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.functions import Call
from export.passes.groups import Groups


def fuse_norms(groups: Groups, node: NodeProto) -> None:
    """A residual, its norm and the rounding of that.

    before    x -> Add y -> LayerNormalization -> QuantizeLinear -> u8
    after     x, y -> AddNormQuantize -> u8, x + y          the residual goes on (pre-norm)
              x, y -> AddPostNormQuantize -> u8, norm       the norm goes on (post-norm)
    """
    norm = groups.producers.get(node.input[0])
    if norm is None or not groups.is_static_rounding(node):
        return
    add = _residual(groups, norm)
    if add is None:
        return
    inputs = (*add.input, *norm.input[1:], *node.input[1:])
    if groups.used_once(norm.output[0]):
        call = Call("AddNormQuantize", inputs, (node.output[0], add.output[0]))
    elif groups.used_once(add.output[0]):
        call = Call("AddPostNormQuantize", inputs, (node.output[0], norm.output[0]))
    else:
        return
    groups.replace([add, norm, node], call)


def fuse_post_norms(groups: Groups, node: NodeProto) -> None:
    """A residual and its norm, where nothing else needs the residual.

    before    x -> Add y -> LayerNormalization
    after     x, y -> AddPostNorm
    """
    add = _residual(groups, node)
    if add is None or not groups.used_once(add.output[0]):
        return
    inputs = (*add.input, *node.input[1:])
    groups.replace([add, node], Call("AddPostNorm", inputs, (node.output[0],)))


def _residual(groups: Groups, norm: NodeProto) -> NodeProto | None:
    """What a norm with gain and bias is of, where that is the sum of two values."""
    if norm.op_type != "LayerNormalization" or len(norm.input) != 3:
        return None
    add: NodeProto | None = groups.producers.get(norm.input[0])
    if add is None or add.op_type != "Add" or set(add.input) & groups.constants.keys():
        return None
    return add
