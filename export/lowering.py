"""Passes over exported graphs: rows kept flat for GEMMs, constants folded, int8 products.

Rows are all axes of a value but its last: [B,Q,D] has M = B * Q rows, a joint state [B,S,Q,D] has
M = B * S * Q. Shape letters: B sentences, S source positions, Q queries, M rows, K inputs,
N outputs, V vocabulary, D model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from export.domains import MICROSOFT
from export.errors import ExportError
from export.folding import (
    Scaled,
    fold_scalars,
    fold_transposes,
    live_nodes,
    original_of,
    users_by_value,
)
from export.fusing import fuse
from export.quantize import (
    LEVELS,
    SMALLEST,
    ZERO_POINT,
    StaticRange,
    quantize_columns,
    weight_key,
)
from training.models.operators.traced import LISTED_LOGITS

Shape = tuple[str | int, ...]


# Operators that treat each row alone, so that they may run on [M,*].
_ROW_OPERATORS = {"Add", "Sub", "Mul", "Div", "Relu", "Gelu", "Sigmoid", "Tanh", "MatMul"}
_ROW_OPERATORS |= {
    "LogSoftmax",
    "LayerNormalization",
    "RMSNormalization",
    "Erf",
    "Softplus",
    "Swish",
}


_IN_ORDER = 128
"""Inputs of a product that ONNX Runtime adds up in one order, whatever the other sizes (MLAS's
default stride over them)."""


def lower(
    model: onnx.ModelProto,
    *,
    int8: bool,
    flat_outputs: frozenset[str] = frozenset(),
    ranges: Mapping[bytes, StaticRange] | None = None,
    exact: frozenset[bytes] = frozenset(),
) -> onnx.ModelProto:
    """The graph for the CPU: fp32, or int8.

    A product whose weights' key is in `ranges` has activations with one static scale, one whose key
    is in `exact` stays fp32, and others have a scale for each row. `flat_outputs` are given as
    [M,*]: ONNX Runtime copies what it reshapes into an output, and logits are large.
    """
    fold_transposes(model)
    scaled = fold_scalars(model)
    lowered = _Lowering(
        model,
        scaled=scaled,
        int8=int8,
        flat_outputs=flat_outputs,
        ranges=ranges or {},
        exact=exact,
    ).run()
    fuse(lowered)
    onnx.checker.check_model(lowered, full_check=False)
    return lowered


class _Lowering:
    """One pass in topological order; values of three and more axes get a flat twin on demand."""

    def __init__(
        self,
        model: onnx.ModelProto,
        *,
        scaled: Mapping[str, Scaled],
        int8: bool,
        flat_outputs: frozenset[str],
        ranges: Mapping[bytes, StaticRange],
        exact: frozenset[bytes],
    ) -> None:
        self._model, self._int8, self._ranges, self._exact = model, int8, ranges, exact
        self._scaled, self._flat_outputs = scaled, flat_outputs
        self._constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        self._users = users_by_value(model.graph)
        self._outputs = {output.name for output in model.graph.output}
        self._axes = _input_axes(model)
        self._shapes = _row_shapes(model, self._axes)
        self._nodes: list[NodeProto] = []
        self._new: dict[str, NDArray[np.generic]] = {}
        self._flat: dict[str, str] = {}  # name -> flat name
        self._shaped = {i.name for i in model.graph.input}  # names that exist in their own shape
        self._quantized: dict[str, tuple[str, str]] = {}  # flat name -> (u8 rows, scales)
        self._weights: dict[str, tuple[str, str, bytes]] = {}
        self._not_negative: set[str] = set()  # flat names
        self._before_relu: dict[str, str] = {}
        self._reshaped: list[onnx.ValueInfoProto] = []
        self._skip: set[str] = set()
        self._count = 0

    def run(self) -> onnx.ModelProto:
        graph = self._model.graph
        for node in graph.node:
            if node.output[0] in self._skip:
                continue
            if self._int8 and self._is_embedding(node):
                self._embed(node)
            elif node.op_type == LISTED_LOGITS.partition("::")[2]:
                self._listed_logits(node)
            elif node.op_type in _ROW_OPERATORS and self._rows(node):
                self._lower_row_operator(node)
            elif node.op_type == "Reshape" and self._keeps_rows(node) and self._runs_flat(node):
                self._flat[node.output[0]] = self._flatten(node.input[0])
            else:
                for name in node.input:
                    self._shape(name)
                self._nodes.append(node)
                self._shaped.update(node.output)
        for name in self._outputs - self._flat_outputs:
            self._shape(name)
        used = {name for node in self._nodes for name in node.input}
        constants = {**self._constants, **self._new}
        kept = [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used]
        lowered = helper.make_graph(
            live_nodes(self._nodes, self._outputs),
            graph.name,
            graph.input,
            self._described_outputs(),
            kept,
            value_info=self._reshaped,
        )
        opsets = [helper.make_opsetid("", self._model.opset_import[0].version)]
        opsets += [helper.make_opsetid(MICROSOFT, 1)] if self._int8 else []
        return helper.make_model(
            lowered,
            opset_imports=opsets,
            ir_version=self._model.ir_version,
            producer_name="macaron",
        )

    def _rows(self, node: NodeProto) -> bool:
        """Whether each input has the output's rows, or is a constant that broadcasts over them."""
        shape = self._shapes.get(node.output[0])
        if shape is None or node.input[0] not in self._shapes:
            return False
        for name in node.input:
            constant = self._constants.get(name)
            if constant is None and self._shapes.get(name, ())[:-1] != shape[:-1]:
                return False
            if constant is not None and constant.ndim > (2 if node.op_type == "MatMul" else 1):
                return False
        return True

    def _keeps_rows(self, node: NodeProto) -> bool:
        """Whether a reshape leaves the last axis, and with it the order of rows, as it is."""
        before, after = (self._shapes.get(name) for name in (node.input[0], node.output[0]))
        return before is not None and after is not None and before[-1] == after[-1]

    def _lower_row_operator(self, node: NodeProto) -> None:
        if node.op_type == "MatMul":
            self._product(node)
            return
        flat = self._runs_flat(node, node.output[0])
        inputs = [self._take(name, flat=flat) for name in node.input]
        attributes = [a for a in node.attribute if a.name != "axis"]
        if len(attributes) < len(node.attribute):
            attributes.append(helper.make_attribute("axis", -1))  # on [B,Q,*] it may be called 2
        output = self._put(node.output[0], flat=flat)
        self._add(node.op_type, inputs, output, attributes)
        if node.op_type == "Relu":
            self._not_negative.add(output)
            self._before_relu[output] = inputs[0]

    def _runs_flat(self, node: NodeProto, output: str = "") -> bool:
        """Whether an operator works on [M,*]: always, but for static int8 activations, which need
        no rows; there only on what exists flat alone or must be put out so."""
        if not self._ranges or output in self._flat_outputs:
            return True
        return any(name in self._flat and name not in self._shaped for name in node.input)

    def _take(self, name: str, *, flat: bool) -> str:
        """An input in one form or the other; constants have but one."""
        return self._flatten(name) if flat and name not in self._constants else name

    def _put(self, name: str, *, flat: bool) -> str:
        """The name of an output in one form or the other."""
        if flat:
            return self._flat_name(name)
        self._shaped.add(name)
        return name

    def _product(self, node: NodeProto) -> None:
        """A matrix product, with the bias that follows it, as one Gemm or one int8 product."""
        output, bias = node.output[0], ""
        users = self._users[output]
        if len(users) == 1 and users[0].op_type == "Add" and output not in self._outputs:
            other = [n for n in users[0].input if n != output]
            if other and other[0] in self._constants and self._constants[other[0]].ndim == 1:
                output, bias = users[0].output[0], other[0]
                self._skip.add(output)
        rows, weight_name = node.input
        if not self._int8 or self._weight(weight_name)[2] in self._exact:
            operands = [self._flatten(rows), weight_name, *([bias] if bias else [])]
            self._add("Gemm" if bias else "MatMul", operands, self._flat_name(output))
            return
        weight, weight_scale, key = self._weight(weight_name)
        if key in self._ranges:
            flat, range_ = self._runs_flat(node, output), self._ranges[key]
            rows = self._take(rows, flat=flat)
            if not range_.signed:  # levels begin at zero: what is below is cut off, as Relu does
                rows = self._before_relu.get(rows, rows)
            u8, scale, zero_point = self._quantize_statically(rows, range_)
            operands = [u8, weight, scale, weight_scale, zero_point, *(["", bias] if bias else [])]
            name = self._put(output, flat=flat)
            self._add("MatMulIntegerToFloat", operands, name, domain=MICROSOFT)
            return
        u8, scales = self._quantize(self._flatten(rows), self._shapes[output][:-1])
        zero_point = self._constant(np.uint8(ZERO_POINT), "zero_point")
        operands = [u8, weight, scales, weight_scale, zero_point]
        if not bias:
            self._add("MatMulIntegerToFloat", operands, self._flat_name(output), domain=MICROSOFT)
            return
        # With a scale for each row, the operator's own bias input would be scaled too.
        product = f"{output}_product"
        self._add("MatMulIntegerToFloat", operands, product, domain=MICROSOFT)
        self._add("Add", [product, bias], self._flat_name(output))

    def _listed_logits(self, node: NodeProto) -> None:
        """Rows [B,Q,D] times each sentence's own rows of a table [V,D] (see `fusing`)."""
        rows, table, columns = node.input
        output, axes = node.output[0], self._shapes[node.input[0]]
        swap = [helper.make_attribute("perm", [0, 2, 1])]
        original, factor = original_of(table, self._scaled, self._constants)
        quantized, scale = quantize_columns(original.astype(np.float32, copy=False).T)
        key = weight_key(quantized)
        if not self._int8 or key in self._exact:
            self._shape(rows)
            own = self._add("Gather", [table, columns], f"{output}_rows")
            self._sum_products(rows, own, output, swap)
            self._shaped.add(output)
            return
        range_ = self._ranges.get(key)
        if range_ is not None:
            self._shape(rows)
            u8, row_scale, zero_point = self._quantize_statically(rows, range_)
        else:
            flat, flat_scale = self._quantize(self._flatten(rows), axes[:-1])
            u8 = self._add("Reshape", [flat, self._shape_vector(axes[1:])], f"{output}_u8")
            one = self._shape_vector((*axes[1:-1], 1))
            row_scale = self._add("Reshape", [flat_scale, one], f"{output}_row_scale")
            zero_point = self._constant(np.uint8(ZERO_POINT), "zero_point")
        rows_s8 = self._constant(np.ascontiguousarray(quantized.T), f"{table}_s8")
        scales = self._constant(scale * factor, f"{table}_column_scale")
        own = self._add("Gather", [rows_s8, columns], f"{output}_rows")
        own = self._add("Transpose", [own], f"{output}_columns", swap)
        # As u8, 128 higher: with s8 the products are not exact on every processor, and ONNX
        # Runtime makes them so (serving/runtime/ort.py) for constant weights only.
        to_u8 = [helper.make_attribute("to", onnx.TensorProto.UINT8)]
        own = self._add("Cast", [own], f"{output}_wrapped", to_u8)
        middle = self._constant(np.uint8(ZERO_POINT), "zero_point")
        own = self._add("BitwiseXor", [own, middle], f"{output}_columns_u8")
        sums = self._add("MatMulInteger", [u8, own, zero_point, middle], f"{output}_sums")
        to_float = [helper.make_attribute("to", onnx.TensorProto.FLOAT)]
        numbers = self._add("Cast", [sums], f"{output}_unscaled", to_float)
        own_scale = self._add("Gather", [scales, columns], f"{output}_own_scale")
        axis = self._constant(np.array([1]), "axis_1")
        own_scale = self._add("Unsqueeze", [own_scale, axis], f"{output}_own_scales")
        both = self._add("Mul", [own_scale, row_scale], f"{output}_scale")
        self._shaped.add(self._add("Mul", [numbers, both], output))

    def _sum_products(
        self, rows: str, own: str, output: str, swap: list[onnx.AttributeProto]
    ) -> None:
        """[B,Q,D] times the transposed [B,L,D], a part of D after the other.

        ONNX Runtime sums up to so many inputs in one order, and more by the number of columns and
        threads: a sentence's bits would depend on its batch.
        """
        width = self._shapes[rows][-1]
        assert isinstance(width, int)
        sizes = [min(_IN_ORDER, width - start) for start in range(0, width, _IN_ORDER)]
        parts = [[rows], [own]]
        if len(sizes) > 1:
            split = self._constant(np.array(sizes), f"{output}_parts")
            axis = helper.make_attribute("axis", 2)
            for i, name in enumerate((rows, own)):
                parts[i] = [f"{output}_part_{i}_{j}" for j in range(len(sizes))]
                self._nodes.append(helper.make_node("Split", [name, split], parts[i]))
                self._nodes[-1].attribute.append(axis)
        total = ""
        for j, (left, right) in enumerate(zip(*parts, strict=True)):
            last = j + 1 == len(sizes)
            right = self._add("Transpose", [right], f"{output}_columns_{j}", swap)
            name = output if last and not total else f"{output}_product_{j}"
            product = self._add("MatMul", [left, right], name)
            if total:
                name = output if last else f"{output}_sum_{j}"
                product = self._add("Add", [total, product], name)
            total = product

    def _quantize_statically(self, name: str, range_: StaticRange) -> tuple[str, str, str]:
        """u8 values, their one scale and their zero point."""
        key = f"{name}_by_{range_.scale!r}_{range_.zero_point}"
        scale = self._constant(range_.scale, f"{key}_scale")
        zero_point = self._constant(np.uint8(range_.zero_point), f"zero_point_{range_.zero_point}")
        if key not in self._quantized:
            u8 = self._add("QuantizeLinear", [name, scale, zero_point], f"{key}_u8")
            self._quantized[key] = (u8, scale)
        return (*self._quantized[key], zero_point)

    def _quantize(self, name: str, axes: Shape) -> tuple[str, str]:
        """u8 rows and their scales; computed once for all products that share the input."""
        if name not in self._quantized:
            absolute = name
            if name not in self._not_negative:
                absolute = self._add("Abs", [name], f"{name}_abs")
            axis = self._constant(np.array([1]), "axis_1")
            peak = self._add("ReduceMax", [absolute, axis], f"{name}_peak", _keepdims(0))
            least = self._constant(np.float32(SMALLEST), "smallest")
            level = self._constant(np.float32(1 / LEVELS), "level")
            scale = self._add("Max", [peak, least], f"{name}_clamped")
            scale = self._add("Mul", [scale, level], f"{name}_scale")
            axis_0 = [helper.make_attribute("axis", 0)]
            zeros = self._zero_points(scale, axes)
            rows = self._add("QuantizeLinear", [name, scale, zeros], f"{name}_u8", axis_0)
            column = self._add("Unsqueeze", [scale, axis], f"{name}_scales")
            self._quantized[name] = (rows, column)
        return self._quantized[name]

    def _zero_points(self, scale: str, axes: Shape) -> str:
        """The zero point once a row [M]; made once for all values with as many rows."""
        count = sorted("*".join(map(str, axes)).split("*"))
        name = "_".join(["row_zero_points", *count])
        if name not in self._shaped:
            shape = self._add("Shape", [scale], f"{name}_shape")
            zero_point = self._constant(np.uint8(ZERO_POINT), "zero_point")
            self._add("Expand", [zero_point, shape], name)
            self._shaped.add(name)
        return name

    def _weight(self, name: str) -> tuple[str, str, bytes]:
        """s8 columns, their scales, and what names them in `ranges` and `exact`."""
        if name not in self._weights:
            # A factor changes the scales, not the levels: the key must be that of the model.
            weight, factor = original_of(name, self._scaled, self._constants)
            quantized, scale = quantize_columns(weight.astype(np.float32, copy=False))
            self._weights[name] = (
                self._constant(quantized, f"{name}_s8"),
                self._constant(scale * factor, f"{name}_scale"),
                weight_key(quantized),
            )
        return self._weights[name]

    def _is_embedding(self, node: NodeProto) -> bool:
        table = self._constants.get(node.input[0]) if node.op_type == "Gather" else None
        return table is not None and table.ndim == 2 and table.dtype == np.float32

    def _embed(self, node: NodeProto) -> None:
        """Look up int8 rows and give them back their scale."""
        table, ids = node.input
        original, scaled_by = original_of(table, self._scaled, self._constants)
        quantized, scale = quantize_columns(original.astype(np.float32, copy=False).T)
        rows = self._constant(np.ascontiguousarray(quantized.T), f"{table}_s8")
        scales = self._constant(scale[:, None] * scaled_by, f"{table}_scale")
        looked_up = self._add("Gather", [rows, ids], f"{node.output[0]}_s8")
        to_float = [helper.make_attribute("to", onnx.TensorProto.FLOAT)]
        as_float = self._add("Cast", [looked_up], f"{node.output[0]}_f32", to_float)
        factor = self._add("Gather", [scales, ids], f"{node.output[0]}_scale")
        self._add("Mul", [as_float, factor], node.output[0])
        self._shaped.add(node.output[0])

    def _flat_name(self, name: str) -> str:
        self._flat[name] = name if name in self._flat_outputs else f"{name}_flat"
        return self._flat[name]

    def _described_outputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's outputs, with two axes where they are flat."""
        return [
            helper.make_tensor_value_info(
                o.name, o.type.tensor_type.elem_type, (None, self._shapes[o.name][-1])
            )
            if o.name in self._flat_outputs
            else o
            for o in self._model.graph.output
        ]

    def _flatten(self, name: str) -> str:
        """The [M,*] form of a value."""
        if name not in self._flat:
            width = self._shapes[name][-1]
            shape = self._constant(np.array([-1, width]), f"shape_{width}")
            self._add("Reshape", [name, shape], self._flat_name(name))
        return self._flat[name]

    def _shape(self, name: str) -> None:
        """Bring a value that so far exists only flat into its own shape."""
        if name not in self._flat or name in self._shaped:
            return
        if name in self._flat_outputs:
            raise ExportError(f"{name} is a flat output and cannot also be read in its own shape")
        shape = self._shape_vector(self._shapes[name][1:])
        self._add("Reshape", [self._flat[name], shape], name)
        self._shaped.add(name)
        # ONNX Runtime cannot infer the width from such a shape, and takes Attention's for 0 then.
        element = onnx.TensorProto.FLOAT
        self._reshaped.append(helper.make_tensor_value_info(name, element, self._shapes[name]))

    def _shape_vector(self, axes: Shape) -> str:
        """A shape of all axes after the first, which is left to be found."""
        sizes = [self._size(axis) for axis in axes]
        shape = "_".join(["shape_of", *sizes])
        if shape not in self._shaped:
            any_size = self._constant(np.array([-1]), "size_any")
            axis_0 = [helper.make_attribute("axis", 0)]
            self._add("Concat", [any_size, *sizes], shape, axis_0)
            self._shaped.add(shape)
        return shape

    def _size(self, axis: str | int) -> str:
        """A one-element vector that holds the size of an axis."""
        name = f"size_{axis}"
        if isinstance(axis, int):
            return self._constant(np.array([axis]), name)
        if name not in self._shaped:
            source, place = self._axes[axis]
            ends = [
                helper.make_attribute("start", place),
                helper.make_attribute("end", place + 1),
            ]
            self._add("Shape", [source], name, ends)
            self._shaped.add(name)
        return name

    def _constant(self, value: NDArray[np.generic] | np.generic, name: str) -> str:
        self._new[name] = np.asarray(value)
        return name

    def _add(
        self,
        operator: str,
        inputs: list[str],
        output: str,
        attributes: Iterable[onnx.AttributeProto] = (),
        domain: str = "",
    ) -> str:
        node = helper.make_node(operator, inputs, [output], domain=domain, name=f"n{self._count}")
        node.attribute.extend(attributes)
        self._count += 1
        self._nodes.append(node)
        return output


def _keepdims(value: int) -> list[onnx.AttributeProto]:
    return [helper.make_attribute("keepdims", value)]


def _input_axes(model: onnx.ModelProto) -> dict[str, tuple[str, int]]:
    """For each symbolic size an input of the graph that has it, and at which axis."""
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
