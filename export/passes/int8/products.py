"""Products of rows with constant weights."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, helper

from export.passes.domains import MICROSOFT
from export.passes.int8.operands import (
    middle_level,
    quantize_statically,
    quantize_weight,
    row_parts,
)
from export.passes.int8.rewriting import Rewriting


def lower_products(graph: Rewriting, node: NodeProto) -> bool:
    """Join a matrix product and the bias that follows it into one product.

        before        [B,Q,K] -> MatMul W -> Add b
        fp32          [M,K] -> Gemm (W, b)
        int8, static  [B,Q,K] -> QuantizeLinear -> MatMulIntegerToFloat (W s8, scales, b)
        int8, by row  [M,K] -> u8 rows and their scales -> MatMulIntegerToFloat (W s8) -> Add b
        16 bits       [M,K] -> u8 rows and their scales, twice -> Concat [2M,K]
                      -> MatMulIntegerToFloat (W s8) -> Split -> Add both -> Add b

    Weights whose key is in `exact` are fp32 in an int8 graph as well.
    """
    if node.op_type != "MatMul" or not graph.treats_rows_alike(node):
        return False
    rows, weight = node.input
    output, bias = _take_bias(graph, node.output[0])
    if not graph.int8 or quantize_weight(graph, weight)[2] in graph.exact:
        operands = [graph.flatten(rows), weight, *([bias] if bias else [])]
        graph.add("Gemm" if bias else "MatMul", operands, graph.flat_name(output))
    elif quantize_weight(graph, weight)[2] in graph.ranges:
        _multiply_statically(graph, node, output, bias)
    else:
        _multiply_by_row(graph, node, output, bias)
    return True


def _take_bias(graph: Rewriting, product: str) -> tuple[str, str]:
    """The output of a product with its bias, and the bias, which is "" if there is none."""
    users = graph.users[product]
    if len(users) == 1 and users[0].op_type == "Add" and product not in graph.outputs:
        other = [name for name in users[0].input if name != product]
        if other and other[0] in graph.constants and graph.constants[other[0]].ndim == 1:
            graph.covered.add(users[0].output[0])
            return users[0].output[0], other[0]
    return product, ""


def _multiply_statically(graph: Rewriting, node: NodeProto, output: str, bias: str) -> None:
    weight, weight_scale, key = quantize_weight(graph, node.input[1])
    flat, range_ = graph.runs_flat(node, output), graph.ranges[key]
    rows = graph.take(node.input[0], flat=flat)
    if not range_.signed:  # levels begin at zero: lower values are cut off, as Relu does
        rows = graph.relu_inputs.get(rows, rows)
    u8, scale, zero_point = quantize_statically(graph, rows, range_)
    operands = [u8, weight, scale, weight_scale, zero_point, *(["", bias] if bias else [])]
    name = graph.put(output, flat=flat)
    graph.add("MatMulIntegerToFloat", operands, name, domain=MICROSOFT)


def _multiply_by_row(graph: Rewriting, node: NodeProto, output: str, bias: str) -> None:
    weight, weight_scale, _ = quantize_weight(graph, node.input[1])
    rows, axes = graph.flatten(node.input[0]), graph.shapes[output][:-1]
    # With a scale for each row, the operator's own bias input would be scaled too.
    name = f"{output}_product" if bias else graph.flat_name(output)
    parts = row_parts(graph, rows, axes)
    several = len(parts) > 1
    u8, scales = _stack(graph, rows, parts) if several else parts[0]
    operands = [u8, weight, scales, weight_scale, middle_level(graph)]
    product = f"{output}_both" if several else name
    graph.add("MatMulIntegerToFloat", operands, product, domain=MICROSOFT)
    if several:
        halves = [f"{output}_half_{i}" for i in range(2)]
        graph.append(helper.make_node("Split", [product], halves, axis=0, num_outputs=2))
        graph.add("Add", halves, name)
    if bias:
        # The bias comes first: ONNX takes a sum's type from there, and does not know the product's.
        graph.add("Add", [bias, name], graph.flat_name(output))


def _stack(graph: Rewriting, rows: str, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """All 8-bit rows concatenated, and their scales; made once for all products."""
    u8, scales = f"{rows}_all_u8", f"{rows}_all_scales"
    if not graph.is_shaped(u8):
        axis_0 = [helper.make_attribute("axis", 0)]
        for names, stacked in zip(zip(*parts, strict=True), (u8, scales), strict=True):
            graph.add("Concat", list(names), stacked, axis_0)
            graph.mark_shaped(stacked)
    return u8, scales
