"""Weights that are found in ONNX files, against the package that writes these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from serving.runtime.graphs.weights import MappedWeights


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "signed": rng.integers(-128, 128, (300, 256), dtype=np.int8),
        "unsigned": rng.integers(0, 256, (2, 256, 256), dtype=np.uint8),
        "small": rng.integers(-128, 128, (16, 16), dtype=np.int8),
        "floats": rng.normal(size=(256, 256)).astype(np.float32),
        "long": rng.integers(0, 9, (128, 128), dtype=np.int64),
    }


@pytest.fixture
def file(arrays: dict[str, np.ndarray], tmp_path: Path) -> Path:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [value],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        tensors,
    )
    path = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(graph), path)
    return path


def test_large_weights_of_one_byte_are_found_as_they_are(
    file: Path, arrays: dict[str, np.ndarray]
) -> None:
    found = MappedWeights(file)
    assert set(found.arrays) == {"signed", "unsigned"}
    for _ in range(2):  # and are there again after they were let go
        for name, array in found.arrays.items():
            assert array.dtype == arrays[name].dtype
            np.testing.assert_array_equal(array, arrays[name])
        found.release()


def test_weights_in_other_files_are_left_to_onnx_runtime(file: Path) -> None:
    model = onnx.load(file)
    onnx.save(model, file, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert MappedWeights(file).arrays == {}


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, -1])
def test_of_a_file_that_is_cut_off_there_are_none_that_reach_beyond_it(
    file: Path, arrays: dict[str, np.ndarray], size: int
) -> None:
    file.write_bytes(file.read_bytes()[:size])
    assert MappedWeights(file).arrays == {}


def test_of_a_file_of_something_else_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "noise"
    for seed in range(50):
        file.write_bytes(np.random.default_rng(seed).bytes(4096))
        assert MappedWeights(file).arrays == {}


def test_the_graph_without_them_says_where_they_lie(file: Path) -> None:
    content = MappedWeights(file).graph()
    assert content is not None
    assert len(content) < file.stat().st_size - 200_000  # both are left out
    light, whole = onnx.load_model_from_string(content), onnx.load(file)
    outside = {
        t.name for t in light.graph.initializer if external_data_helper.uses_external_data(t)
    }
    assert outside == {"signed", "unsigned"}
    external_data_helper.load_external_data_for_model(light, str(file.parent))
    for tensor in light.graph.initializer:
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    assert light == whole


def test_a_graph_without_large_ones_is_read_as_it_is(file: Path) -> None:
    model = onnx.load(file)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in ("small", "floats")]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.save(model, file)
    assert MappedWeights(file).graph() is None
