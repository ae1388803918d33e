"""How graphs become programs; what they compute is checked beside ONNX Runtime
(tests/integration/decoding/test_programs.py)."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from serving.runtime.cpu_graphs import Program, load_program
from serving.runtime.kernels import native_library

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs the native kernels")


def loaded(folder: Path, *nodes: onnx.NodeProto, opset: int = 24) -> Program | None:
    """A graph with the input x [N], the constant two, and the outputs y and z."""

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])

    graph = helper.make_graph(
        list(nodes),
        "few",
        [value("x")],
        [value("y"), value("z")],
        [numpy_helper.from_array(np.array(2, np.float32), "two")],
    )
    file = folder / "few.onnx"
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), file)
    assert LIBRARY is not None
    return load_program(LIBRARY, file, 1)


DOUBLE = helper.make_node("Mul", ["x", "two"], ["y"])
FOURFOLD = helper.make_node("Mul", ["y", "two"], ["z"])
X = np.arange(5, dtype=np.float32)


def test_nodes_run_in_order_and_read_each_other(tmp_path: Path) -> None:
    program = loaded(tmp_path, DOUBLE, FOURFOLD)
    assert program is not None
    y, z = program.call({"x": X}, {"y": (5,), "z": (5,)})
    assert (y.tolist(), z.tolist()) == ((X * 2).tolist(), (X * 4).tolist())


def test_an_output_that_is_not_wanted_is_still_read_by_others(tmp_path: Path) -> None:
    program = loaded(tmp_path, DOUBLE, FOURFOLD)
    assert program is not None
    (z,) = program.call({"x": X}, {"z": (5,)})
    assert z.tolist() == (X * 4).tolist()


def test_memory_is_reused_but_not_while_it_is_read(tmp_path: Path) -> None:
    """A chain, at whose end the first link is read again."""
    links = [helper.make_node("Mul", ["x", "two"], ["l0"])]
    links += [
        helper.make_node("Mul", [f"l{place}", "two"], [f"l{place + 1}"]) for place in range(6)
    ]
    links += [
        helper.make_node("Mul", ["l0", "l6"], ["y"]),
        helper.make_node("Mul", ["l5", "l6"], ["z"]),
    ]
    program = loaded(tmp_path, *links)
    assert program is not None
    for size in (5, 50, 3):
        x = np.arange(size, dtype=np.float32)
        y, z = program.call({"x": x}, {"y": x.shape, "z": x.shape})
        assert y.tolist() == (x * 2 * x * 128).tolist()
        assert z.tolist() == (x * 64 * x * 128).tolist()


def test_a_bound_program_keeps_what_it_needs(tmp_path: Path) -> None:
    x, y = X.copy(), np.zeros(5, np.float32)
    program = loaded(tmp_path, DOUBLE, FOURFOLD)
    assert program is not None
    run = program.bind({"x": x}, {"y": y})
    del program
    gc.collect()
    x += 1
    run()
    assert y.tolist() == (x * 2).tolist()


@pytest.mark.parametrize(
    "nodes",
    [
        [DOUBLE],  # no node makes z
        [FOURFOLD, DOUBLE],  # y is read before it is made
        [DOUBLE, FOURFOLD, FOURFOLD],
        [DOUBLE, helper.make_node("Mul", ["y", "nothing"], ["z"])],
        [DOUBLE, helper.make_node("Mul", ["y"], ["z"])],
        [DOUBLE, helper.make_node("Mul", ["y", "two", "two"], ["z"])],
        [DOUBLE, helper.make_node("Mul", ["y", ""], ["z"])],
        [DOUBLE, helper.make_node("Mul", ["y", "two"], ["z"], domain="elsewhere")],
        [DOUBLE, helper.make_node("Erf", ["y"], ["z"])],
        [DOUBLE, helper.make_node("Concat", ["y", ""], ["z"], axis=0)],
        [DOUBLE, helper.make_node("Relu", ["y"], ["z", "more"])],
        [DOUBLE, helper.make_node("Shape", ["y"], ["s"]), helper.make_node("Relu", ["s"], ["z"])],
        [DOUBLE, helper.make_node("NoSuch", ["y", "two"], ["z"], domain="macaron")],
        [helper.make_node("Mul", ["x", "two"], ["x"]), DOUBLE, FOURFOLD],
    ],
)
def test_a_graph_that_cannot_run_is_no_program(nodes: list[onnx.NodeProto], tmp_path: Path) -> None:
    assert loaded(tmp_path, *nodes) is None


def test_numbers_of_attributes_are_passed_on_exactly(tmp_path: Path) -> None:
    """Whole ones of 64 bits; real ones without a sign that a locale could change."""
    most = 2**63 - 1
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=most),
        helper.make_node("Expand", ["two", "s"], ["y"]),
        helper.make_node("Reshape", ["y", "s"], ["z"], allowzero=0),
    ]
    program = loaded(tmp_path, *nodes)
    assert program is not None
    y, z = program.call({"x": X}, {"y": (5,), "z": (5,)})
    assert y.tolist() == z.tolist() == [2.0] * 5


def test_scales_of_several_numbers_are_left_to_onnx_runtime(tmp_path: Path) -> None:
    levels = helper.make_tensor_value_info("levels", TensorProto.UINT8, ["N", 2])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["rows", "scales", "zeros"], ["levels"])],
        "columns",
        [rows],
        [levels],
        [
            numpy_helper.from_array(np.ones(2, np.float32), "scales"),
            numpy_helper.from_array(np.zeros(2, np.uint8), "zeros"),
        ],
    )
    opsets = [helper.make_opsetid("", 24)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "columns.onnx")
    assert LIBRARY is not None
    assert load_program(LIBRARY, tmp_path / "columns.onnx", 1) is None


def test_a_graph_with_many_products_of_real_numbers_is_no_program(tmp_path: Path) -> None:
    """ONNX Runtime multiplies them faster."""
    for count in (2, 3):
        names = [f"x{place}" for place in range(count + 1)]
        nodes = [
            helper.make_node("Gemm", [one, "weight"], [other], transB=1)
            for one, other in itertools.pairwise(names)
        ]
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2])
            for name in (names[0], names[-1])
        ]
        weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "weight")
        graph = helper.make_graph(nodes, "head", values[:1], values[1:], [weight])
        opsets = [helper.make_opsetid("", 24)]
        onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "head.onnx")
        assert LIBRARY is not None
        assert (load_program(LIBRARY, tmp_path / "head.onnx", 1) is not None) == (count == 2)


def test_a_graph_of_earlier_operators_is_no_program(tmp_path: Path) -> None:
    assert loaded(tmp_path, DOUBLE, FOURFOLD, opset=17) is None


def test_arrays_that_are_not_in_one_piece_are_refused(tmp_path: Path) -> None:
    program = loaded(tmp_path, DOUBLE, FOURFOLD)
    assert program is not None
    with pytest.raises(ValueError, match="must be contiguous"):
        program.bind({"x": np.arange(10, dtype=np.float32)[::2]}, {})
