"""Constants computed once instead of at every call: transposed weights, scalar factors."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper


def fold_transposes(model: onnx.ModelProto) -> None:
    """Replace the transpose of a constant by a constant; torch.onnx leaves large ones."""
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Transpose" and node.input[0] in constants:
            order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
            value = numpy_helper.to_array(constants[node.input[0]]).transpose(order)
            folded = numpy_helper.from_array(np.ascontiguousarray(value), node.output[0])
            graph.initializer.append(folded)
            graph.node.remove(node)


def fold_scalars(model: onnx.ModelProto) -> None:
    """Fold `(x @ W + b) * constant` into W and b, and `Gather(E, ids) * constant` into E.

    This takes Macaron's halves and the embedding's scale out of the graph. The constants of the
    shipped models are powers of two (0.5 and 16), for which it is exact.
    """
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    users = users_by_value(graph)
    producers = {output: node for node in graph.node for output in node.output}
    for node in list(graph.node):
        factor, source = _scalar_factor(node, constants, producers)
        if factor is None or source is None or len(users[node.input[0]]) != 1:
            continue
        targets = _scalable(source, producers, constants, users)
        if not targets:
            continue
        for owner, position in targets:
            scaled = numpy_helper.to_array(constants[owner.input[position]]) * np.float32(factor)
            name = f"{owner.input[position]}_scaled_{len(constants)}"
            constants[name] = numpy_helper.from_array(scaled.astype(np.float32), name)
            graph.initializer.append(constants[name])
            owner.input[position] = name
        for user in users[node.output[0]]:
            for i, name in enumerate(user.input):
                if name == node.output[0]:
                    user.input[i] = source.output[0]
        users[source.output[0]] = users[node.output[0]]
        graph.node.remove(node)


def _scalar_factor(
    node: NodeProto, constants: dict[str, onnx.TensorProto], producers: dict[str, NodeProto]
) -> tuple[float | None, NodeProto | None]:
    if node.op_type != "Mul" or node.input[1] not in constants:
        return None, None
    value = numpy_helper.to_array(constants[node.input[1]])
    source = producers.get(node.input[0])
    return (float(value), source) if value.ndim == 0 and value.dtype == np.float32 else (None, None)


def _scalable(
    source: NodeProto,
    producers: dict[str, NodeProto],
    constants: dict[str, onnx.TensorProto],
    users: dict[str, list[NodeProto]],
) -> list[tuple[NodeProto, int]]:
    """The constant inputs by which the node's output can be scaled; empty where it cannot."""
    if source.op_type == "MatMul" and source.input[1] in constants:
        return [(source, 1)]
    if source.op_type == "Gather" and source.input[0] in constants:
        return [(source, 0)]
    if source.op_type == "Add" and source.input[1] in constants:
        product = producers.get(source.input[0])
        if (
            product is not None
            and product.op_type == "MatMul"
            and product.input[1] in constants
            and len(users[product.output[0]]) == 1
        ):
            return [(source, 1), (product, 1)]
    return []


def users_by_value(graph: onnx.GraphProto) -> dict[str, list[NodeProto]]:
    """The nodes that read each value."""
    users: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for output in node.output:
            users.setdefault(output, [])
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users
