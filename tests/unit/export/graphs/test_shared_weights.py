"""Weights that lie beside the graphs of a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from export.graphs.shared_weights import share_weights
from tests.unit.export.passes.small_graph import constants_of, small_graph

LARGE = np.random.default_rng(0).standard_normal((128, 130)).astype(np.float32)
OTHER = LARGE + 1
SMALL = np.ones(4, np.float32)


def graph(**constants: np.ndarray) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [name], [f"{name}_read"]) for name in constants]
    return small_graph(nodes, {}, [f"{name}_read" for name in constants], constants)


def saved(folder: Path, *models: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    """The constants of the models as whoever loads them finds them."""
    found = []
    for number, model in enumerate(models):
        path = folder / f"{number}.onnx"
        path.write_bytes(model.SerializeToString())
        found.append(constants_of(onnx.load(str(path))))
    return found


def test_what_two_graphs_hold_lies_beside_them_once(tmp_path: Path) -> None:
    one, two = graph(a=LARGE, b=OTHER, s=SMALL), graph(c=LARGE, s=SMALL)
    share_weights([one, two], tmp_path / "shared.bin")
    assert (tmp_path / "shared.bin").stat().st_size == LARGE.nbytes
    assert two.ByteSize() < 1000
    found = saved(tmp_path, one, two)
    for name, value in (("a", LARGE), ("b", OTHER), ("s", SMALL)):
        np.testing.assert_array_equal(found[0][name], value)
    np.testing.assert_array_equal(found[1]["c"], LARGE)
    small = [i for model in (one, two) for i in model.graph.initializer if i.name in "bs"]
    assert all(tensor.raw_data for tensor in small)


def test_each_begins_with_a_page(tmp_path: Path) -> None:
    models = [graph(a=LARGE, b=OTHER), graph(a=LARGE, b=OTHER)]
    share_weights(models, tmp_path / "shared.bin")
    places = [
        int(entry.value)
        for tensor in models[0].graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert places == [0, -(-LARGE.nbytes // 4096) * 4096]
    assert LARGE.nbytes % 4096
    for found in saved(tmp_path, *models):
        np.testing.assert_array_equal(found["b"], OTHER)


def test_a_matrix_that_one_graph_holds_twice_is_shared_too(tmp_path: Path) -> None:
    model = graph(a=LARGE, b=LARGE)
    share_weights([model], tmp_path / "shared.bin")
    assert (tmp_path / "shared.bin").stat().st_size == LARGE.nbytes
    (found,) = saved(tmp_path, model)
    np.testing.assert_array_equal(found["b"], LARGE)


def test_graphs_with_nothing_in_common_have_no_file(tmp_path: Path) -> None:
    one, two = graph(a=LARGE, s=SMALL), graph(a=OTHER, s=SMALL)
    before = [one.SerializeToString(), two.SerializeToString()]
    share_weights([one, two], tmp_path / "shared.bin")
    assert not (tmp_path / "shared.bin").exists()
    assert [one.SerializeToString(), two.SerializeToString()] == before
    assert numpy_helper.to_array(one.graph.initializer[1]).tolist() == SMALL.tolist()
