"""Rows of 8 bits that are looked up and scaled in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from export.passes.fusing.rows.embeddings import fuse_embeddings
from tests.unit.export.passes.small_graph import check_fused, run, small_graph

GENERATOR = np.random.default_rng(0)
TABLE = GENERATOR.integers(-127, 128, (9, 4), dtype=np.int8)
SCALES = GENERATOR.random((9, 1)).astype(np.float32)
CONSTANTS = {"table": TABLE, "scales": SCALES, "factor": np.array(0.5, np.float32)}
FEED = {"ids": np.array([[3, 0, 8], [1, 3, 3]]), "others": np.array([[0, 1, 2], [3, 4, 5]])}

node = helper.make_node
ROWS = [
    node("Gather", ["table", "ids"], ["levels"]),
    node("Cast", ["levels"], ["numbers"], to=TensorProto.FLOAT),
]


def scaled_by(ids: str) -> list[NodeProto]:
    return [
        node("Gather", ["scales", ids], ["own"]),
        node("Mul", ["numbers", "own"], ["y"]),
    ]


def test_looked_up_rows_are_scaled_at_once() -> None:
    model = small_graph([*ROWS, *scaled_by("ids")], FEED, ["y"], CONSTANTS)
    np.testing.assert_array_equal(run(model, FEED)[0], (TABLE * SCALES)[FEED["ids"]])
    (call,) = check_fused(model, FEED, {"Cast": fuse_embeddings}, ["GatherDequantize"])
    assert list(call.input) == ["table", "scales", "ids"]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([*ROWS, *scaled_by("others")], ["y"]),
        ([*ROWS, *scaled_by("ids")], ["y", "numbers"]),
        ([*ROWS, *scaled_by("ids")], ["y", "levels"]),
        ([*ROWS, node("Mul", ["numbers", "factor"], ["y"])], ["y"]),
        ([*ROWS, node("Sub", ["numbers", "factor"], ["y"])], ["y"]),
        ([node("Cast", ["ids"], ["y"], to=TensorProto.FLOAT)], ["y"]),
    ],
    ids=["other scales", "numbers are read", "levels are read", "one scale", "Sub", "no rows"],
)
def test_another_form_stays(nodes: list[NodeProto], outputs: list[str]) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    check_fused(model, FEED, {"Cast": fuse_embeddings}, [])
