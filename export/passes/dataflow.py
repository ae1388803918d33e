"""The readers of each value of a graph, and the nodes that are read at all."""

from __future__ import annotations

import onnx
from onnx import NodeProto


def users_by_value(graph: onnx.GraphProto) -> dict[str, list[NodeProto]]:
    """The nodes that read each value."""
    users: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for output in node.output:
            users.setdefault(output, [])
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def live_nodes(nodes: list[NodeProto], outputs: set[str]) -> list[NodeProto]:
    """The nodes that some output needs, in order."""
    needed = set(outputs)
    live = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            live.append(node)
    return live[::-1]
