"""Whether a step may have one query per sentence: its bits must not depend on the other queries."""

from __future__ import annotations

import onnx

from serving.bundle.graph import Graph, Tensor

_ALL_QUERIES = {"Attention", "Einsum"}
"""Operators whose algorithm in ONNX Runtime depends on the number of queries; so does a MatMul of
two computed matrices. Functions have kernels that treat each query alone
(`export.passes.fusing.groups`)."""


def name_beams_apart(description: Graph, lowered: onnx.ModelProto) -> Graph:
    """The step graph's description. Scores get a separate axis K only if a single query gives the
    same bits as it does among others; otherwise they keep the axis of the queries."""
    constants = {tensor.name for tensor in lowered.graph.initializer}
    functions = {function.name for function in lowered.functions}
    for node in lowered.graph.node:
        computed = node.op_type == "MatMul" and constants.isdisjoint(node.input)
        # Values of ancestors may be summed along a middle axis: ONNX Runtime then adds in
        # another order if there is one query.
        computed = computed or "ancestors" in node.input
        if node.op_type not in functions and (computed or node.op_type in _ALL_QUERIES):
            return description.model_copy(
                update={"inputs": tuple(map(_by_query, description.inputs))}
            )
    return description


def _by_query(tensor: Tensor) -> Tensor:
    return tensor.model_copy(update={"axes": ("B", "Q")}) if tensor.role == "score" else tensor
