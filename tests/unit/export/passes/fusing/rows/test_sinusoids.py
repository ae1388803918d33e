"""Sinusoids of positions in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from export.passes.fusing.rows.sinusoids import fuse_sinusoids
from tests.unit.export.passes.small_graph import check_fused, run, small_graph

FREQUENCIES = (10000.0 ** -(np.arange(3) / 3)).astype(np.float32)
CONSTANTS = {"one": np.array(1, np.float32), "axis": np.array([2]), "frequencies": FREQUENCIES}
FEED = {"positions": np.array([[0, 1, 5, 9]]), "given": FREQUENCIES}

node = helper.make_node


def sinusoids(
    *, frequencies: str = "frequencies", order: tuple[str, str] = ("Sin", "Cos"), axis: int = -1
) -> list[NodeProto]:
    return [
        node("Cast", ["positions"], ["numbers"], to=TensorProto.FLOAT),
        node("Add", ["numbers", "one"], ["from_one"]),
        node("Unsqueeze", ["from_one", "axis"], ["column"]),
        node("Mul", ["column", frequencies], ["angles"]),
        node(order[0], ["angles"], ["first"]),
        node(order[1], ["angles"], ["second"]),
        node("Concat", ["first", "second"], ["y"], axis=axis),
    ]


def test_sines_and_cosines_of_positions_are_one_operator() -> None:
    model = small_graph(sinusoids(), FEED, ["y"], CONSTANTS)
    angles = (FEED["positions"] + 1)[..., None] * FREQUENCIES
    wanted = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    np.testing.assert_allclose(run(model, FEED)[0], wanted, atol=1e-6)
    (call,) = check_fused(model, FEED, {"Concat": fuse_sinusoids}, ["Sinusoids"])
    assert list(call.input) == ["positions", "one", "frequencies"]


@pytest.mark.parametrize(
    "nodes",
    [
        sinusoids(frequencies="given"),
        sinusoids(order=("Cos", "Sin")),
        sinusoids(axis=1),
        [*sinusoids()[1:], node("Identity", ["y"], ["z"])],
        [
            *sinusoids()[:5],
            node("Add", ["angles", "one"], ["later"]),
            node("Cos", ["later"], ["second"]),
            sinusoids()[-1],
        ],
    ],
    ids=["frequencies of a request", "cosines first", "along another axis", "floats", "two angles"],
)
def test_another_form_stays(nodes: list[NodeProto]) -> None:
    feed = dict(FEED)
    if nodes[0].op_type != "Cast":
        feed["numbers"] = FEED["positions"].astype(np.float32)
    model = small_graph(nodes, feed, ["y"], CONSTANTS)
    check_fused(model, feed, {"Concat": fuse_sinusoids}, [])
