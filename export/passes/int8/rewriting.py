"""A walk through a graph in topological order, in which rules write a new graph.

Rows are all axes of a value but its last: [B,Q,D] has M = B * Q rows, a joint state [B,S,Q,D] has M
= B * S * Q. A value of three and more axes can exist in two forms: its own shape, and flat, [M,*],
as GEMMs want it. Each form is made once, and only if something asks for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from export.arithmetic.quantize import Products
from export.errors import ExportError
from export.passes.dataflow import live_nodes, users_by_value
from export.passes.domains import MICROSOFT
from export.passes.fold_scalars import Scaled

Shape = tuple[str | int, ...]
Rule = Callable[["Rewriting", NodeProto], bool]
"""Writes the replacement of a node and returns True, or leaves the node to the rules after it."""


class Rewriting:
    """The graph that is read, and the nodes and constants of the new one so far."""

    def __init__(
        self,
        model: onnx.ModelProto,
        *,
        scaled: Mapping[str, Scaled],
        int8: bool,
        flat_outputs: frozenset[str],
        products: Products,
    ) -> None:
        """`scaled` is the result of `fold_scalars`; the others are arguments of
        `lowering.lower`."""
        self.int8, self.wide = int8, products.wide
        self.ranges, self.exact = products.ranges or {}, products.exact
        self.scaled, self.flat_outputs = scaled, flat_outputs
        self.constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        self.users = users_by_value(model.graph)
        self.outputs = {output.name for output in model.graph.output}
        self.relu_inputs: dict[str, str] = {}
        """The input of each ReLU, by the name of its output, which is never negative."""
        self.covered: set[str] = set()
        """Outputs of nodes that have been replaced together with an earlier node."""
        self.quantized: dict[str, tuple[str, str]] = {}
        """The u8 rows and the scales of values, made once for all products that read them."""
        self.weights: dict[str, tuple[str, str, bytes]] = {}
        """The s8 columns, scales and keys of weights."""
        self.tables: dict[bytes, str] = {}
        """The s8 tables [V,D] that ids are looked up in, by `weight_key`."""
        self._model = model
        self._axes = _input_axes(model)
        self.shapes = _row_shapes(model, self._axes)
        self._nodes: list[NodeProto] = []
        self._new: dict[str, NDArray[np.generic]] = {}
        self._flat: dict[str, str] = {}  # name -> flat name
        self._shaped = {i.name for i in model.graph.input}  # names that exist in their own shape
        self._reshaped: list[onnx.ValueInfoProto] = []
        given = {node.name for node in model.graph.node}
        self._names = (name for name in map("n{}".format, itertools.count()) if name not in given)

    def run(self, rules: Sequence[Rule]) -> onnx.ModelProto:
        """The new graph: the first rule that knows a node replaces it, and nodes that no rule knows
        stay."""
        for node in self._model.graph.node:
            if node.output[0] in self.covered or any(rule(self, node) for rule in rules):
                continue
            for name in node.input:
                self.give_shape(name)
            self.append(node)
            self.mark_shaped(*node.output)
        for output in self._model.graph.output:
            if output.name not in self.flat_outputs:
                self.give_shape(output.name)
        return self._written()

    def add(
        self,
        operator: str,
        inputs: list[str],
        output: str,
        attributes: Iterable[onnx.AttributeProto] = (),
        domain: str = "",
    ) -> str:
        """Write a node of one output; returns the output's name."""
        name = next(self._names)
        node = helper.make_node(operator, inputs, [output], domain=domain, name=name)
        node.attribute.extend(attributes)
        self.append(node)
        return output

    def append(self, node: NodeProto) -> None:
        """Write a node unchanged."""
        self._nodes.append(node)

    def constant(self, value: NDArray[np.generic] | np.generic, name: str) -> str:
        """Keep a constant under a name, which is returned; one that nothing reads is dropped."""
        self._new[name] = np.asarray(value)
        return name

    def treats_rows_alike(self, node: NodeProto) -> bool:
        """Whether each input has the output's rows, or is a constant that broadcasts over them."""
        shape = self.shapes.get(node.output[0])
        if shape is None or node.input[0] not in self.shapes:
            return False
        for name in node.input:
            constant = self.constants.get(name)
            if constant is None and self.shapes.get(name, ())[:-1] != shape[:-1]:
                return False
            if constant is not None and constant.ndim > (2 if node.op_type == "MatMul" else 1):
                return False
        return True

    def runs_flat(self, node: NodeProto, output: str = "") -> bool:
        """Whether an operator works on [M,*]. It always does, except with static int8 activations,
        which need no rows: then only if an input exists only in flat form, or if the output must be
        flat."""
        if not self.ranges or output in self.flat_outputs:
            return True
        return any(name in self._flat and name not in self._shaped for name in node.input)

    def take(self, name: str, *, flat: bool) -> str:
        """An input in flat form or in its own shape; constants have only one form."""
        return self.flatten(name) if flat and name not in self.constants else name

    def put(self, name: str, *, flat: bool) -> str:
        """The name of an output in one form or the other."""
        if flat:
            return self.flat_name(name)
        self.mark_shaped(name)
        return name

    def flat_name(self, name: str) -> str:
        """The name of a value's flat form. From this call on the form exists."""
        self._flat[name] = name if name in self.flat_outputs else f"{name}_flat"
        return self._flat[name]

    def flatten(self, name: str) -> str:
        """The [M,*] form of a value."""
        if name not in self._flat:
            width = self.shapes[name][-1]
            shape = self.constant(np.array([-1, width]), f"shape_{width}")
            self.add("Reshape", [name, shape], self.flat_name(name))
        return self._flat[name]

    def share_flat(self, name: str, other: str) -> None:
        """Make the flat form of one value that of another, whose rows are in the same order."""
        self._flat[name] = self.flatten(other)

    def mark_shaped(self, *names: str) -> None:
        """Note that values exist in their own shape."""
        self._shaped.update(names)

    def is_shaped(self, name: str) -> bool:
        """Whether a value exists in its own shape."""
        return name in self._shaped

    def give_shape(self, name: str) -> None:
        """Bring a value that so far exists only flat into its own shape."""
        if name not in self._flat or name in self._shaped:
            return
        if name in self.flat_outputs:
            raise ExportError(f"{name} is a flat output and cannot also be read in its own shape")
        shape = self.shape_vector(self.shapes[name][1:])
        self.add("Reshape", [self._flat[name], shape], name)
        self.mark_shaped(name)
        # ONNX Runtime cannot infer the width from such a shape, and takes Attention's for 0 then.
        element = onnx.TensorProto.FLOAT
        self._reshaped.append(helper.make_tensor_value_info(name, element, self.shapes[name]))

    def shape_vector(self, axes: Shape) -> str:
        """A shape of all axes after the first, which is left to be found."""
        sizes = [self._size(axis) for axis in axes]
        shape = "_".join(["shape_of", *sizes])
        if shape not in self._shaped:
            any_size = self.constant(np.array([-1]), "size_any")
            axis_0 = [helper.make_attribute("axis", 0)]
            self.add("Concat", [any_size, *sizes], shape, axis_0)
            self.mark_shaped(shape)
        return shape

    def _size(self, axis: str | int) -> str:
        """A one-element vector that holds the size of an axis."""
        name = f"size_{axis}"
        if isinstance(axis, int):
            return self.constant(np.array([axis]), name)
        if name not in self._shaped:
            source, place = self._axes[axis]
            ends = [
                helper.make_attribute("start", place),
                helper.make_attribute("end", place + 1),
            ]
            self.add("Shape", [source], name, ends)
            self.mark_shaped(name)
        return name

    def _written(self) -> onnx.ModelProto:
        """The new graph: the nodes that its outputs need, and the constants that are read."""
        graph = self._model.graph
        used = {name for node in self._nodes for name in node.input}
        constants = {**self.constants, **self._new}
        kept = [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used]
        written = helper.make_graph(
            live_nodes(self._nodes, self.outputs),
            graph.name,
            graph.input,
            self._described_outputs(),
            kept,
            value_info=self._reshaped,
        )
        opsets = [helper.make_opsetid("", self._model.opset_import[0].version)]
        opsets += [helper.make_opsetid(MICROSOFT, 1)] if self.int8 else []
        return helper.make_model(
            written,
            opset_imports=opsets,
            ir_version=self._model.ir_version,
            producer_name="macaron",
        )

    def _described_outputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's outputs; flat ones have two axes."""
        return [
            helper.make_tensor_value_info(
                o.name, o.type.tensor_type.elem_type, (None, self.shapes[o.name][-1])
            )
            if o.name in self.flat_outputs
            else o
            for o in self._model.graph.output
        ]


def _input_axes(model: onnx.ModelProto) -> dict[str, tuple[str, int]]:
    """An input of the graph that has each symbolic size, and the axis at which it has it."""
    axes: dict[str, tuple[str, int]] = {}
    for value in model.graph.input:
        for place, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                axes.setdefault(dim.dim_param, (value.name, place))
    return axes


def _row_shapes(model: onnx.ModelProto, known_axes: dict[str, tuple[str, int]]) -> dict[str, Shape]:
    """Values that can be laid flat and brought back.

    These have three axes or more, a last one of fixed size, and between it and the first only
    fixed sizes or sizes of inputs.
    """
    graph = model.graph
    shapes = {
        info.name: tuple(d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info, *graph.output)
    }
    return {
        name: shape
        for name, shape in shapes.items()
        if len(shape) >= 3
        and isinstance(shape[-1], int)
        and all(isinstance(axis, int) or axis in known_axes for axis in shape[1:-1])
    }
