"""Products of rows with each sentence's own rows of a table.

Shape letters: B sentences, Q queries, D inputs, L rows of a sentence's list, V rows of the table.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper

from export.arithmetic.quantize import quantize_columns, weight_key
from export.passes.fold_scalars import original_of
from export.passes.int8.operands import cast, middle_level, quantize_statically, row_parts
from export.passes.int8.rewriting import Rewriting
from serving.arrays import Floats
from training.models.operators.traced import LISTED_LOGITS

_IN_ORDER = 128
"""Inputs of a product that ONNX Runtime adds up in one order, whatever the other sizes (MLAS's
default stride over them)."""
_SWAP = [helper.make_attribute("perm", [0, 2, 1])]


def lower_listed_logits(graph: Rewriting, node: NodeProto) -> bool:
    """Gather a sentence's rows, then multiply.

    before    x [B,Q,D], E [V,D], columns [B,L] -> ListedLogits -> [B,Q,L]
    fp32      columns -> Gather E -> [B,L,D] -> Transpose -> MatMul -> [B,Q,L]   (in parts of D)
                                                    x -------^
    int8      columns -> Gather E s8 -> Transpose -> Cast -> BitwiseXor 128 -> MatMulInteger
              x -> u8 -------------------------------------------------------------^  -> Cast
              columns -> Gather scales -> Unsqueeze -> Mul the rows' scale -> Mul <-----|
    16 bits   the same twice, and both added up

    With a bias [V] after the columns:

              columns -> Gather b -> Unsqueeze -> Add the product -> [B,Q,L]
    """
    if node.op_type != LISTED_LOGITS.partition("::")[2]:
        return False
    table, output = node.input[1], node.output[0]
    product = f"{output}_product" if len(node.input) > 3 else output
    original, factor = original_of(table, graph.scaled, graph.constants)
    quantized, scale = quantize_columns(original.astype(np.float32, copy=False).T)
    key = weight_key(quantized)
    if not graph.int8 or key in graph.exact:
        graph.give_shape(node.input[0])
        own = graph.add("Gather", [table, node.input[2]], f"{output}_rows")
        _sum_products(graph, node.input[0], own, product)
    else:
        _multiply_int8(graph, node, quantized.T, scale * factor, key, product)
    if len(node.input) > 3:
        columns, bias = node.input[2:]
        own = graph.add("Gather", [bias, columns], f"{output}_bias")
        axis = graph.constant(np.array([1]), "axis_1")
        own = graph.add("Unsqueeze", [own, axis], f"{output}_biases")
        graph.add("Add", [product, own], output)
    graph.mark_shaped(output)
    return True


def _multiply_int8(
    graph: Rewriting,
    node: NodeProto,
    table_s8_VD: NDArray[np.int8],
    scale_V: Floats,
    key: bytes,
    output: str,
) -> None:
    """The product with an int8 table whose rows each have a scale."""
    rows, table, columns = node.input[:3]
    rows_s8 = graph.constant(np.ascontiguousarray(table_s8_VD), f"{table}_s8")
    scales = graph.constant(scale_V, f"{table}_column_scale")
    own = graph.add("Gather", [rows_s8, columns], f"{output}_rows")
    own = graph.add("Transpose", [own], f"{output}_columns", _SWAP)
    # As u8, 128 higher: with s8 the products are not exact on every processor, and ONNX
    # Runtime makes them so (serving/runtime/ort.py) for constant weights only.
    own = graph.add("Cast", [own], f"{output}_wrapped", cast(onnx.TensorProto.UINT8))
    middle = middle_level(graph)
    own = graph.add("BitwiseXor", [own, middle], f"{output}_columns_u8")
    own_scale = graph.add("Gather", [scales, columns], f"{output}_own_scale")
    axis = graph.constant(np.array([1]), "axis_1")
    own_scale = graph.add("Unsqueeze", [own_scale, axis], f"{output}_own_scales")
    parts = _quantized_rows(graph, rows, output, key)
    products = [f"{output}_part_{i}" for i in range(len(parts))] if len(parts) > 1 else [output]
    for (u8, row_scale, zero_point), product in zip(parts, products, strict=True):
        sums = graph.add("MatMulInteger", [u8, own, zero_point, middle], f"{product}_sums")
        numbers = graph.add("Cast", [sums], f"{product}_unscaled", cast(onnx.TensorProto.FLOAT))
        both = graph.add("Mul", [own_scale, row_scale], f"{product}_scale")
        graph.add("Mul", [numbers, both], product)
    if len(parts) > 1:
        graph.add("Add", products, output)


def _quantized_rows(
    graph: Rewriting, rows: str, output: str, key: bytes
) -> list[tuple[str, str, str]]:
    """The rows [B,Q,D] as u8, their scale or scales, and their zero point. With 16 bits there are
    two of each, whose products are added up."""
    range_ = graph.ranges.get(key)
    if range_ is not None:
        graph.give_shape(rows)
        return [quantize_statically(graph, rows, range_)]
    axes, flat = graph.shapes[rows], graph.flatten(rows)
    own, one = graph.shape_vector(axes[1:]), graph.shape_vector((*axes[1:-1], 1))
    shaped = []
    for i, (flat_u8, flat_scale) in enumerate(row_parts(graph, flat, axes[:-1])):
        u8 = graph.add("Reshape", [flat_u8, own], f"{output}_u8_{i}")
        scale = graph.add("Reshape", [flat_scale, one], f"{output}_row_scale_{i}")
        shaped.append((u8, scale, middle_level(graph)))
    return shaped


def _sum_products(graph: Rewriting, rows: str, own: str, output: str) -> None:
    """Multiply [B,Q,D] by the transposed [B,L,D], one part of D after the other.

    ONNX Runtime sums up to `_IN_ORDER` inputs in one order, and more of them in an order that
    depends on the numbers of columns and threads: a sentence's bits would depend on its batch.
    """
    width = graph.shapes[rows][-1]
    assert isinstance(width, int)
    sizes = [min(_IN_ORDER, width - start) for start in range(0, width, _IN_ORDER)]
    parts = [[rows], [own]]
    if len(sizes) > 1:
        split = graph.constant(np.array(sizes), f"{output}_parts")
        for i, name in enumerate((rows, own)):
            parts[i] = [f"{output}_part_{i}_{j}" for j in range(len(sizes))]
            graph.append(helper.make_node("Split", [name, split], parts[i], axis=2))
    total = ""
    for j, (left, right) in enumerate(zip(*parts, strict=True)):
        last = j + 1 == len(sizes)
        right = graph.add("Transpose", [right], f"{output}_columns_{j}", _SWAP)
        name = output if last and not total else f"{output}_product_{j}"
        product = graph.add("MatMul", [left, right], name)
        if total:
            name = output if last else f"{output}_sum_{j}"
            product = graph.add("Add", [total, product], name)
        total = product
