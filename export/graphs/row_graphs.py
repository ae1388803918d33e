"""The two graphs that re-arrange caches on a GPU. `python -m export.graphs.row_graphs` writes them
beside the session that runs them; the package ships the files because it does not depend on
`onnx`."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from serving.runtime.gpu.cuda_memory import move_files

_OPSET, _IR_VERSION = 24, 11


def row_graph(*, two: bool) -> onnx.ModelProto:
    """A graph that gathers rows of an array [T, N, D] of words by an index. With `two`, rows of a
    second array are numbered after those of the first."""
    inputs = ["rows", "others"][: 1 + two]
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["T", size, "D"])
        for name, size in zip(inputs, "NM", strict=False)
    ]
    index = helper.make_tensor_value_info("index", TensorProto.INT64, ["K"])
    moved = helper.make_tensor_value_info("moved", TensorProto.INT32, ["T", "K", "D"])
    nodes = [helper.make_node("Gather", ["all" if two else "rows", "index"], ["moved"], axis=1)]
    if two:
        nodes.insert(0, helper.make_node("Concat", inputs, ["all"], axis=1))
    graph = helper.make_graph(nodes, "rows_of_two" if two else "rows", [*values, index], [moved])
    opset = helper.make_opsetid("", _OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)


if __name__ == "__main__":
    for each, path in move_files().items():
        path.write_bytes(row_graph(two=each).SerializeToString())
