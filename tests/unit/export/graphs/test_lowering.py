"""What looks like a group that has a kernel, and is none."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.lowering import fuse


def graph(nodes: list[NodeProto], output: str) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 5]),
        helper.make_tensor_value_info("hidden", TensorProto.BOOL, [2, 3, 4]),
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    constants = [
        numpy_helper.from_array(np.ones((7, 4), np.float32), "table"),
        numpy_helper.from_array(np.array(-np.inf, np.float32), "never"),
    ]
    made = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def test_products_with_looked_up_rows_stay_where_there_are_no_lists() -> None:
    """As relative positions have them."""
    model = graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("Transpose", ["rows"], ["columns_of"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["x", "columns_of"], ["y"]),
        ],
        "y",
    )
    fuse(model)
    assert not model.functions


def test_a_hidden_softmax_stays_where_nothing_is_chosen() -> None:
    model = graph(
        [
            helper.make_node("Where", ["hidden", "never", "x"], ["seen"]),
            helper.make_node("LogSoftmax", ["seen"], ["y"]),
        ],
        "y",
    )
    fuse(model)
    assert not model.functions


def test_every_module_of_the_passes_has_a_part_in_lowering() -> None:
    folder = Path(__file__).resolve().parents[4] / "export"
    reached: set[Path] = set()
    waiting = [folder / "graphs" / "lowering.py"]
    while waiting:
        tree = ast.parse(waiting.pop().read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "export.passes."
            ):
                found = folder.parent / f"{node.module.replace('.', '/')}.py"
                if found not in reached:
                    reached.add(found)
                    waiting.append(found)
    modules = set((folder / "passes").rglob("*.py"))
    assert reached == {module for module in modules if module.name != "__init__.py"}
