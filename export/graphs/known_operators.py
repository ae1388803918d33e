"""Replaces operators that torch.onnx does not know, so that no second trace is needed.

For a few unknown operators (views, copies, casts and squares) torch.onnx would have PyTorch
decompose the whole program, which takes as long as tracing it. Here they are replaced in the graph.
Values of a graph have no storage, so a copy is the value itself, and a view is a reshape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

Size = int | Node
"""A size in the graph: a number, or the node that computes it."""

_aten = torch.ops.aten
_COPIES = {
    _aten.alias.default,
    _aten.contiguous.default,
    _aten.detach.default,
    _aten.detach_.default,
    _aten.dropout.default,
    _aten.lift_fresh_copy.default,
}
"""Operators that return their first argument; dropout too, in evaluation."""
_VIEWS = {_aten.flatten.using_ints, _aten.reshape.default, _aten.unflatten.int}
_NAMES = {
    _aten.__and__.Tensor: _aten.bitwise_and.Tensor,
    _aten.__or__.Tensor: _aten.bitwise_or.Tensor,
}
_CHECKS = {
    _aten._assert_scalar.default,
    _aten._assert_tensor_metadata.default,
    _aten.promote_types.default,
    _aten.sym_constrain_range_for_size.default,
}
"""Checks that PyTorch inserts while tracing; nothing uses their results."""


def use_known_operators(program: ExportedProgram, known: Collection[Any]) -> bool:
    """Replace operators in the graph of a program until all are `known` to torch.onnx.

    Returns False, and changes nothing, if there are others that this module cannot replace.
    """
    graph = program.graph
    replaced = _COPIES | _VIEWS | _NAMES.keys() | _CHECKS | _REWRITES.keys()
    targets = {node.target for node in graph.nodes if node.op == "call_function"}
    if not all(_is_scalar(target) or target in known for target in targets - replaced):
        return False
    sizes = _Sizes(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and not sizes.shared(node):
            _replace(node, sizes)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return True


def _is_scalar(target: Any) -> bool:
    """Whether a function works on sizes: these are Python's own functions, and torch.onnx knows all
    of them."""
    return not isinstance(target, torch._ops.OpOverload)


def _replace(node: Node, sizes: _Sizes) -> None:
    target: Any = node.target
    if target in _COPIES:
        _put(node, node.args[0])
    elif target in _CHECKS:
        if not node.users:
            node.graph.erase_node(node)
    elif target in _NAMES:
        node.target = _NAMES[target]
    elif target in _VIEWS:
        _reshape(node, sizes)
    elif target in _REWRITES:
        _REWRITES[target](node, *node.args, **node.kwargs)


def _put(node: Node, value: Any) -> None:
    """Use `value` in place of a node; an output keeps its node, whose name the program uses."""
    if any(user.op == "output" for user in node.users):
        _call(node, _aten.clone.default, value)
        return
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)


def _call(node: Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    node.target, node.args, node.kwargs = target, args, kwargs


def _reshape(node: Node, sizes: _Sizes) -> None:
    value: Any = node.args[0]
    shape = node.meta["val"].shape
    if value.meta["val"].shape == shape:
        _put(node, value)
        return
    with node.graph.inserting_before(node):
        new = [sizes.of(size) for size in shape]
    if None not in new:  # otherwise it stays, and is known as well
        _call(node, _aten.reshape.default, value, new)


def _cast(node: Node, value: Any, dtype: torch.dtype, *_: Any, **__: Any) -> None:
    if value.meta["val"].dtype == dtype:
        _put(node, value)
    else:
        _call(node, _aten._to_copy.default, value, dtype=dtype)


def _split(node: Node, value: Any, parts: int, axis: int = 0) -> None:
    size = value.meta["val"].shape[axis]
    if isinstance(size, int):
        _call(node, _aten.split.Tensor, value, math.ceil(size / parts), axis)


def _subtract(node: Node, value: Any, other: Any, alpha: Any = 1) -> None:
    _call(node, _aten.sub.Tensor, other, value, alpha=alpha)


def _square(node: Node, value: Any) -> None:
    _call(node, _aten.pow.Tensor_Scalar, value, 2)


_REWRITES: dict[Any, Callable[..., None]] = {
    _aten.to.dtype: _cast,
    _aten.chunk.default: _split,
    _aten.rsub.Scalar: _subtract,
    _aten.square.default: _square,
}


class _Sizes:
    """The sizes of a graph, each computed once: sizes of inputs, and their products."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._first = next(node for node in graph.nodes if node.op != "placeholder")
        self._nodes: dict[Any, Node] = {}
        self._inputs = dict(_input_sizes(graph))

    def shared(self, node: Node) -> bool:
        """Replace a node by an earlier one that computes the same size; returns whether one
        exists."""
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt):
            return False
        found = self._nodes.setdefault(value.node.expr, node)
        if found is not node:
            _put(node, found)
        return found is not node

    def of(self, size: int | torch.SymInt) -> Size | None:
        """A size for the node that is being extended; None if it is not a product of sizes of
        inputs."""
        return size if isinstance(size, int) else self._of(size.node.expr)

    def _of(self, expression: Any) -> Size | None:
        if expression.is_number:
            return int(expression)
        if expression in self._nodes:
            return self._nodes[expression]
        if expression in self._inputs:
            value, axis = self._inputs[expression]
            with self._graph.inserting_before(self._first):
                node = self._graph.call_function(_aten.sym_size.int, (value, axis))
            node.meta["val"] = value.meta["val"].shape[axis]
        elif expression.is_Mul:
            factors = [self._of(factor) for factor in expression.as_ordered_factors()]
            if None in factors:
                return None
            node = self._product(factors)
        else:
            return None
        self._nodes[expression] = node
        return node

    def _product(self, factors: Sequence[Any]) -> Node:
        product = factors[0]
        for factor in factors[1:]:
            values = [
                each.meta["val"] if isinstance(each, Node) else each for each in (product, factor)
            ]
            product = self._graph.call_function(operator.mul, (product, factor))
            product.meta["val"] = math.prod(values)
        node: Node = product
        return node


def _input_sizes(graph: Graph) -> Iterable[tuple[Any, tuple[Node, int]]]:
    """Each variable size of an input, with the input and the axis."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    yield size.node.expr, (node, axis)
