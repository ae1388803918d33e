"""Products with weights in fp16 that read int8 weights."""

from __future__ import annotations

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.arithmetic.weight_only import BITS, BLOCK, fits, quantize_blocks
from export.passes.dataflow import live_nodes
from export.passes.domains import MICROSOFT


def quantize_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the products of an fp16 graph read their weights in blocks of int8; the model is
    changed.

        before    MatMul x W
        after     MatMulNBits x W8 scales
        before    Gemm x W b
        after     MatMulNBits x W8 scales -> Add b

    A bias beside the weights would keep the fastest GPU kernels from computing the product. Weights
    without a whole number of blocks stay unchanged.
    """
    graph = model.graph
    weights = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT16
    }
    typed = {value.name for value in (*graph.value_info, *graph.output)}
    nodes: list[NodeProto] = []
    made: dict[str, TensorProto] = {}
    for node in graph.node:
        weight = weights.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or not _is_product(node) or not fits(weight):
            nodes.append(node)
            continue
        levels, scales = f"{node.input[1]}_levels", f"{node.input[1]}_scales"
        if levels not in made:
            levels_NGW, scale_NG = quantize_blocks(weight)
            made[levels] = numpy_helper.from_array(levels_NGW, levels)
            made[scales] = numpy_helper.from_array(scale_NG, scales)
        bias = list(node.input[2:])
        product = f"{node.output[0]}_product" if bias else node.output[0]
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                [node.input[0], levels, scales],
                [product],
                name=product,
                domain=MICROSOFT,
                K=weight.shape[0],
                N=weight.shape[1],
                bits=BITS,
                block_size=BLOCK,
            )
        )
        if bias:
            nodes.append(
                helper.make_node("Add", [product, *bias], list(node.output), name=node.output[0])
            )
        if product not in typed:
            # ONNX knows no types of the operator. A Gemm's rows are in one axis.
            shape = [f"{product}_rows", weight.shape[1]] if bias else None
            graph.value_info.append(
                helper.make_tensor_value_info(product, TensorProto.FLOAT16, shape)
            )
    _replace(model, nodes, made)
    return model


def _is_product(node: NodeProto) -> bool:
    """Whether a node is a plain product, without factors or transposed operands."""
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and not node.attribute)


def _replace(model: onnx.ModelProto, nodes: list[NodeProto], made: dict[str, TensorProto]) -> None:
    graph = model.graph
    kept = live_nodes(nodes, {output.name for output in graph.output})
    used = {name for node in kept for name in node.input}
    constants = [i for i in (*graph.initializer, *made.values()) if i.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(constants)
    if all(entry.domain != MICROSOFT for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
