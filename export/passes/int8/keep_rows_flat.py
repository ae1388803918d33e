"""Operators that treat each row separately, on flat values."""

from __future__ import annotations

from onnx import NodeProto, helper

from export.passes.int8.rewriting import Rewriting

_ROW_OPERATORS = {"Add", "Sub", "Mul", "Div", "Relu", "Gelu", "Sigmoid", "Tanh"}
_ROW_OPERATORS |= {"LogSoftmax", "LayerNormalization", "RMSNormalization"}
_ROW_OPERATORS |= {"Erf", "Softplus", "Swish"}


def keep_rows_flat(graph: Rewriting, node: NodeProto) -> bool:
    """Let an operator work on [M,*] between two products, so that nothing is reshaped there.

        before    [B,Q,K] -> MatMul -> Relu -> MatMul -> [B,Q,N]
        after     [B,Q,K] -> Reshape -> [M,K] -> Gemm -> Relu -> Gemm -> [M,N] -> Reshape -> [B,Q,N]

    The output of ReLU is remembered: it needs no sign in int8.
    """
    if node.op_type not in _ROW_OPERATORS or not graph.treats_rows_alike(node):
        return False
    flat = graph.runs_flat(node, node.output[0])
    inputs = [graph.take(name, flat=flat) for name in node.input]
    attributes = [a for a in node.attribute if a.name != "axis"]
    if len(attributes) < len(node.attribute):
        attributes.append(helper.make_attribute("axis", -1))  # on [B,Q,*] it may be called 2
    output = graph.add(node.op_type, inputs, graph.put(node.output[0], flat=flat), attributes)
    if node.op_type == "Relu":
        graph.relu_inputs[output] = inputs[0]
    return True


def drop_reshapes(graph: Rewriting, node: NodeProto) -> bool:
    """Drop a reshape that keeps the last axis, and so the order of rows.

    before    [B*S,Q,D] -> Reshape -> [B,S,Q,D] -> LayerNormalization
    after     [M,D] -> LayerNormalization
    """
    if node.op_type != "Reshape":
        return False
    before, after = (graph.shapes.get(name) for name in (node.input[0], node.output[0]))
    if before is None or after is None or before[-1] != after[-1] or not graph.runs_flat(node):
        return False
    graph.share_flat(node.output[0], node.input[0])
    return True
