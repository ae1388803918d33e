"""Int8 operands of products: u8 rows with their scales, s8 columns with theirs.

Shape letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from export.arithmetic.quantize import (
    LEVELS,
    SMALLEST,
    ZERO_POINT,
    StaticRange,
    quantize_columns,
    weight_key,
)
from export.passes.fold_scalars import original_of
from export.passes.int8.rewriting import Rewriting, Shape


def quantize_statically(graph: Rewriting, name: str, range_: StaticRange) -> tuple[str, str, str]:
    """u8 values, their one scale and their zero point.

    before    x
    after     x -> QuantizeLinear (scale, zero point) -> u8
    """
    key = f"{name}_by_{range_.scale!r}_{range_.zero_point}"
    scale = graph.constant(range_.scale, f"{key}_scale")
    zero_point = graph.constant(np.uint8(range_.zero_point), f"zero_point_{range_.zero_point}")
    if key not in graph.quantized:
        u8 = graph.add("QuantizeLinear", [name, scale, zero_point], f"{key}_u8")
        graph.quantized[key] = (u8, scale)
    return (*graph.quantized[key], zero_point)


def quantize_rows(graph: Rewriting, name: str, axes: Shape) -> tuple[str, str]:
    """u8 rows and their scales [M,1] of a flat value whose rows have those axes.

    before    x [M,K]
    after     x -> Abs -> ReduceMax -> Max -> Mul -> scale [M]   (no Abs after a ReLU)
              x -> QuantizeLinear (scale, zero points [M]) -> u8
    """
    if name not in graph.quantized:
        absolute = name
        if name not in graph.relu_inputs:
            absolute = graph.add("Abs", [name], f"{name}_abs")
        axis = graph.constant(np.array([1]), "axis_1")
        one_axis_less = [helper.make_attribute("keepdims", 0)]
        peak = graph.add("ReduceMax", [absolute, axis], f"{name}_peak", one_axis_less)
        least = graph.constant(np.float32(SMALLEST), "smallest")
        level = graph.constant(np.float32(1 / LEVELS), "level")
        scale = graph.add("Max", [peak, least], f"{name}_clamped")
        scale = graph.add("Mul", [scale, level], f"{name}_scale")
        axis_0 = [helper.make_attribute("axis", 0)]
        zeros = _zero_points(graph, name, axes)
        rows = graph.add("QuantizeLinear", [name, scale, zeros], f"{name}_u8", axis_0)
        column = graph.add("Unsqueeze", [scale, axis], f"{name}_scales")
        graph.quantized[name] = (rows, column)
    return graph.quantized[name]


def row_parts(graph: Rewriting, name: str, axes: Shape) -> list[tuple[str, str]]:
    """The results of `quantize_rows` for a flat value; if activations have 16 bits, also for the
    rest that its rounding leaves. The products of all parts are to be added up.

    before    x [M,K]
    after     x -> u8 rows and their scales -> Cast -> Sub 128 -> Mul -> Sub from x -> u8 rows and
              their scales
    """
    rest = f"{name}_rest"
    u8, scales = quantize_rows(graph, name, axes)
    if not graph.wide:
        return [(u8, scales)]
    if rest not in graph.quantized:
        levels = graph.add("Cast", [u8], f"{name}_levels", cast(onnx.TensorProto.FLOAT))
        middle = graph.constant(np.float32(ZERO_POINT), "middle_level")
        levels = graph.add("Sub", [levels, middle], f"{name}_signed_levels")
        rounded = graph.add("Mul", [levels, scales], f"{name}_rounded")
        graph.add("Sub", [name, rounded], rest)
    return [(u8, scales), quantize_rows(graph, rest, axes)]


def quantize_weight(graph: Rewriting, name: str) -> tuple[str, str, bytes]:
    """The s8 columns [K,N], their scales [N], and their key in `ranges` and `exact`.

    Columns that are the rows of a table, as with shared vectors of input and output pieces, are
    made by transposing the table, so that its numbers are in the graph once.
    """
    if name not in graph.weights:
        # A factor changes the scales, not the levels: the key must be that of the model.
        weight, factor = original_of(name, graph.scaled, graph.constants)
        quantized, scale = quantize_columns(weight.astype(np.float32, copy=False))
        table = graph.tables.get(weight_key(quantized.T))
        columns = (
            graph.constant(quantized, f"{name}_s8")
            if table is None
            else graph.add("Transpose", [table], f"{name}_s8")
        )
        graph.weights[name] = (
            columns,
            graph.constant(scale * factor, f"{name}_scale"),
            weight_key(quantized),
        )
    return graph.weights[name]


def middle_level(graph: Rewriting) -> str:
    """The zero point of signed values."""
    return graph.constant(np.uint8(ZERO_POINT), "zero_point")


def cast(to: int) -> list[onnx.AttributeProto]:
    """Attributes of a Cast to a type of `TensorProto`."""
    return [helper.make_attribute("to", to)]


def _zero_points(graph: Rewriting, rows: str, axes: Shape) -> str:
    """The zero point once per row of a value [M,K]; made once for all values with as many rows."""
    count = sorted("*".join(map(str, axes)).split("*"))
    name = "_".join(["row_zero_points", *count])
    if not graph.is_shaped(name):
        first_axis = [helper.make_attribute("end", 1)]
        shape = graph.add("Shape", [rows], f"{name}_shape", first_axis)
        graph.add("Expand", [middle_level(graph), shape], name)
        graph.mark_shaped(name)
    return name
