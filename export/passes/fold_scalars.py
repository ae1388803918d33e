"""Scalar factors: Macaron's halves, the embedding's scale and that of the queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper

from export.passes.dataflow import users_by_value
from serving.arrays import Floats


@dataclass(frozen=True)
class Scaled:
    """A constant that is another one times a factor."""

    original: str
    factor: Floats
    """A number, or one for each column."""


def fold_scalars(model: onnx.ModelProto) -> dict[str, Scaled]:
    """Fold a factor into the constants from which the multiplied value was made.

        before    x -> MatMul W -> Add b -> Mul c        ids -> Gather E -> Mul c
        after     x -> MatMul c W -> Add c b             ids -> Gather c E

    A query is one part of a wider product:

        before    x -> MatMul W -> Split -> q -> Mul c   (k and v as they are)
        after     x -> MatMul W', some columns of which are c times W's -> Split -> q

    Returns the new constants by name.
    """
    folding = _Folding(model.graph)
    for node in list(model.graph.node):
        folding.fold(node)
    return folding.scaled


class _Folding:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.scaled: dict[str, Scaled] = {}
        self._graph = graph
        self._constants = {i.name: i for i in graph.initializer}
        self._users = users_by_value(graph)
        self._producers = {output: node for node in graph.node for output in node.output}
        self._outputs = {output.name for output in graph.output}

    def fold(self, node: NodeProto) -> None:
        """Remove a multiplication by a scalar from the graph, if possible."""
        if node.op_type != "Mul" or node.input[1] not in self._constants:
            return
        value = numpy_helper.to_array(self._constants[node.input[1]])
        if value.ndim or value.dtype != np.float32:
            return
        name, factor = node.input[0], np.asarray(value)
        if not self._has_one_user(name):
            return
        source, split = self._producers.get(name), None
        if source is not None and source.op_type == "Split":
            split, source = source, self._split_columns(source)
            if source is None:
                return
        targets = self._scalable(source) if source is not None else []
        if not targets:
            return
        if split is not None:
            owner, position = targets[0]
            width = self._constants[owner.input[position]].dims[-1]
            factors = _split_factors(split, name, factor, width)
            if factors is None:
                return
            factor = factors
        for owner, position in targets:
            owner.input[position] = self._scale(owner.input[position], factor)
        # The product's name stays, which may be that of an output of the graph.
        producer, product = self._producers[name], node.output[0]
        producer.output[list(producer.output).index(name)] = product
        self._producers[product] = producer
        self._graph.node.remove(node)

    def _split_columns(self, split: NodeProto) -> NodeProto | None:
        """The node whose columns are split, unchanged or laid out by head; else None."""
        axis = {a.name: a.i for a in split.attribute}.get("axis")
        name = split.input[0]
        if axis == 1:
            name = self._without_heads(name)
        elif axis not in (-1, 2):
            return None
        return self._producers.get(name) if self._has_one_user(name) else None

    def _without_heads(self, name: str) -> str:
        """The name of the value [B,Q,D] that was laid out as [B,H,Q,E]; empty for other values."""
        transpose = self._producers.get(name)
        if transpose is None or transpose.op_type != "Transpose" or not self._has_one_user(name):
            return ""
        if next(list(a.ints) for a in transpose.attribute if a.name == "perm") != [0, 2, 1, 3]:
            return ""
        reshape = self._producers.get(transpose.input[0])
        if reshape is None or reshape.op_type != "Reshape":
            return ""
        shape = self._constants.get(reshape.input[1])
        if shape is None or numpy_helper.to_array(shape)[:2].tolist() != [0, 0]:
            return ""
        return reshape.input[0] if self._has_one_user(transpose.input[0]) else ""

    def _has_one_user(self, name: str) -> bool:
        return name not in self._outputs and len(self._users.get(name, ())) == 1

    def _scalable(self, source: NodeProto) -> list[tuple[NodeProto, int]]:
        """The constant inputs by which the node's output can be scaled; empty if it cannot."""
        if source.op_type == "MatMul" and source.input[1] in self._constants:
            return [(source, 1)]
        if source.op_type == "Gather" and source.input[0] in self._constants:
            return [(source, 0)]
        if source.op_type == "Add" and source.input[1] in self._constants:
            product = self._producers.get(source.input[0])
            if (
                product is not None
                and product.op_type == "MatMul"
                and product.input[1] in self._constants
                and self._has_one_user(product.output[0])
            ):
                return [(source, 1), (product, 1)]
        return []

    def _scale(self, name: str, factor: Floats) -> str:
        before = self.scaled.get(name, Scaled(name, np.asarray(np.float32(1))))
        scaled = Scaled(before.original, before.factor * factor)
        value = numpy_helper.to_array(self._constants[before.original]) * scaled.factor
        new = f"{before.original}_scaled_{len(self._constants)}"
        self._constants[new] = numpy_helper.from_array(value.astype(np.float32), new)
        self._graph.initializer.append(self._constants[new])
        self.scaled[new] = scaled
        return new


def _split_factors(split: NodeProto, name: str, factor: Floats, width: int) -> Floats | None:
    """The factor of each of `width` columns, split into equal parts of which one is scaled.

    None if they are split in another way.
    """
    parts = {a.name: a.i for a in split.attribute}.get("num_outputs", 0)
    if not parts or width % parts:
        return None
    factors = np.ones((parts, width // parts), np.float32)
    factors[list(split.output).index(name)] = factor
    return factors.ravel()


def original_of(
    name: str, scaled: Mapping[str, Scaled], constants: Mapping[str, NDArray[np.generic]]
) -> tuple[NDArray[np.generic], Floats]:
    """A constant before anything was folded into it, and the factor."""
    if name not in scaled:
        return constants[name], np.asarray(np.float32(1))
    return constants[scaled[name].original], scaled[name].factor
