"""Nodes and constants of ONNX files beside what the package `onnx` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from serving.runtime.graphs.file import GraphFile, ValueInfo

WEIGHTS: dict[str, NDArray[Any]] = {
    "floats": np.linspace(-1, 1, 7, dtype=np.float32).reshape(7, 1),
    "bytes": np.arange(-5, 5, dtype=np.int8),
    "levels": np.arange(250, 256, dtype=np.uint8).reshape(2, 3),
    "numbers": np.array(-7, np.int64),
    "none": np.zeros((0, 4), np.int32),
}


def saved(folder: Path, *constants: onnx.TensorProto, **attributes: Any) -> Path:
    """A model of one node, whose inputs have named, fixed and unknown sizes."""
    node = helper.make_node("Split", ["x", "", "y"], ["a", "b"], domain="macaron", **attributes)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 3, None]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT16, []),
    ]
    outputs = [
        helper.make_tensor_value_info("a", TensorProto.UINT8, [1]),
        onnx.ValueInfoProto(name="b"),
    ]
    graph = helper.make_graph([node], "one", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("macaron", 1)]
    file = folder / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), file)
    return file


def test_everything_is_as_it_was_written(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    numbers: dict[str, Any] = {"axis": -2, "epsilon": 1e-6, "words": "few", "parts": 0}
    found = GraphFile(saved(tmp_path, *tensors, order=[1, -1, 0], **numbers))
    (node,) = found.nodes
    assert (node.domain, node.operator) == ("macaron", "Split")
    assert (node.inputs, node.outputs) == (["x", "", "y"], ["a", "b"])
    wanted = {"axis": -2, "epsilon": float(np.float32(1e-6)), "words": None, "parts": 0}
    wanted |= {"order.0": 1, "order.1": -1, "order.2": 0}
    assert node.attributes == wanted
    assert found.opsets == {"": 24, "macaron": 1}
    assert found.inputs == [ValueInfo("x", "float32", ["B", 3, None]), ValueInfo("y", None, [])]
    assert found.outputs == [ValueInfo("a", "uint8", [1]), ValueInfo("b", None, ())]
    assert found.constants.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        constant = found.constants[name]
        assert (constant.dtype, constant.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(constant, array)
        assert constant.flags.aligned


def test_bytes_stay_in_the_mapped_file_and_can_be_read_after_their_release(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    file = saved(tmp_path, *tensors)
    found = GraphFile(file)
    begin, size = found.place()
    assert size == file.stat().st_size
    for name in ("bytes", "levels"):
        address = found.constants[name].ctypes.data
        assert begin <= address < begin + size
    found.release()
    np.testing.assert_array_equal(found.constants["bytes"], WEIGHTS["bytes"])


def test_nodes_are_read_without_the_constants(tmp_path: Path) -> None:
    """A graph that cannot be a program may have gigabytes of them."""
    found = GraphFile(saved(tmp_path, external("first", "missing.bin", 0, WEIGHTS["bytes"])))
    assert [node.operator for node in found.nodes] == ["Split"]
    with pytest.raises(FileNotFoundError):
        assert found.constants


def external(name: str, location: str, offset: int, array: Any) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(array, name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": array.nbytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_constants_may_lie_in_a_file_beside(tmp_path: Path) -> None:
    first, second = WEIGHTS["bytes"], WEIGHTS["floats"]
    (tmp_path / "shared.bin").write_bytes(b"123" + first.tobytes() + second.tobytes())
    found = GraphFile(
        saved(
            tmp_path,
            external("first", "shared.bin", 3, first),
            external("second", "shared.bin", 3 + first.nbytes, second),
        )
    )
    np.testing.assert_array_equal(found.constants["first"], first)
    np.testing.assert_array_equal(found.constants["second"], second)


@pytest.mark.parametrize("location", ["../shared.bin", "/etc/hostname", "a/b"])
def test_constants_elsewhere_are_refused(location: str, tmp_path: Path) -> None:
    file = saved(tmp_path, external("first", location, 0, WEIGHTS["bytes"]))
    with pytest.raises(ValueError, match="a file of the same folder"):
        assert GraphFile(file).constants


def test_constants_that_end_after_their_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "shared.bin").write_bytes(b"1234")
    file = saved(tmp_path, external("first", "shared.bin", 0, WEIGHTS["bytes"]))
    with pytest.raises(ValueError, match="buffer is smaller"):
        assert GraphFile(file).constants


def test_constants_of_other_kinds_are_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, numpy_helper.from_array(np.zeros(3, np.float16), "half"))
    with pytest.raises(ValueError, match="another type of numbers"):
        assert GraphFile(file).constants
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [2], [1.0, 2.0])
    with pytest.raises(ValueError, match="not stored as plain bytes"):
        assert GraphFile(saved(tmp_path, listed)).constants


def test_an_attribute_of_another_form_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, epsilon=0.5)
    data, written = file.read_bytes(), b"\x15" + np.float32(0.5).tobytes()
    assert data.count(written) == 1
    file.write_bytes(data.replace(written, b"\x10\x80\x80\x80\x00"))  # a number in its place
    with pytest.raises(ValueError, match="another form"):
        GraphFile(file)


def test_a_file_with_two_graphs_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path)
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(ValueError, match="several graphs"):
        GraphFile(file)
