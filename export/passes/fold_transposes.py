"""Weights that a graph transposes at every call."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper


def fold_transposes(model: onnx.ModelProto) -> None:
    """Replace the transpose of a constant by a constant; torch.onnx leaves large ones.

    before    W [N,K] -> Transpose -> W' [K,N]
    after     W' [K,N], a constant
    """
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Transpose" and node.input[0] in constants:
            order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
            value = numpy_helper.to_array(constants[node.input[0]]).transpose(order)
            folded = numpy_helper.from_array(np.ascontiguousarray(value), node.output[0])
            graph.initializer.append(folded)
            graph.node.remove(node)
