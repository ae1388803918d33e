"""Graphs for TensorRT hold the same numbers in caches of another shape."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from export.engines.static_caches import drop_softmax_precision, static_caches
from tests.unit.export.passes.small_graph import kinds, run, small_graph

CAPACITY = 6
AXES = {
    "cache": ("B", "C", 4),
    "by_head": ("B", 2, "C", 3),
    "new": ("B", "Q", 4),
    "new_by_head": ("B", 2, "Q", 3),
    "at": ("B",),
}


def appending(*, used: bool) -> onnx.ModelProto:
    """Two caches that are appended to, of which something is computed where it is `used`."""
    nodes = [
        helper.make_node("TensorScatter", ["cache", "new", "at"], ["cache_out"], axis=1),
        helper.make_node("TensorScatter", ["by_head", "new_by_head", "at"], ["heads_out"], axis=2),
        helper.make_node("Neg", ["new"], ["other"]),
    ]
    outputs = ["cache_out", "heads_out", "other"]
    if used:
        nodes.append(helper.make_node("ReduceSum", ["cache_out", "axis"], ["total"], keepdims=0))
        outputs.append("total")
    constants = {"axis": np.array([2])} if used else {}
    shapes = {**AXES, "cache_out": ("B", "C", 4), "heads_out": ("B", 2, "C", 3)}
    model = small_graph(nodes, feed(2, 1, np.zeros(2, np.int64)), outputs, constants, shapes)
    for name in ("other", "total"):
        for value in model.graph.output:
            if value.name == name:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


def feed(rows: int, queries: int, at: np.ndarray) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(rows)
    shapes = {
        "cache": (rows, CAPACITY, 4),
        "by_head": (rows, 2, CAPACITY, 3),
        "new": (rows, queries, 4),
        "new_by_head": (rows, 2, queries, 3),
    }
    made = {n: generator.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    return made | {"at": at}


@settings(max_examples=20, deadline=None)
@given(data=st.data(), rows=st.integers(1, 3), queries=st.integers(1, 3), used=st.booleans())
def test_the_bytes_are_the_same(data: st.DataObject, rows: int, queries: int, used: bool) -> None:
    places = st.integers(0, CAPACITY - queries)
    at = np.array(data.draw(st.lists(places, min_size=rows, max_size=rows)), np.int64)
    given_feed = feed(rows, queries, at)
    wanted, made = run(appending(used=used), given_feed), appending(used=used)
    static_caches(made, {"cache", "by_head"}, CAPACITY)
    found = run(made, given_feed | {"cache": given_feed["cache"][:, None]})
    assert found[0].shape == (rows, 1, CAPACITY, 4)
    for one, other in zip(found, wanted, strict=True):
        assert one.tobytes() == other.tobytes()


def test_shapes_are_fixed_and_nothing_is_added_without_need() -> None:
    made = appending(used=False)
    static_caches(made, {"cache", "by_head"}, CAPACITY)
    assert kinds(made) == ["Unsqueeze", "TensorScatter", "TensorScatter", "Neg"]
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*made.graph.input, *made.graph.output)
    }
    assert shapes["cache"] == shapes["cache_out"] == ["B", 1, CAPACITY, 4]
    assert shapes["by_head"] == shapes["heads_out"] == ["B", 2, CAPACITY, 3]
    assert shapes["new"] == ["B", "Q", 4]
    assert "Squeeze" in kinds(_static(appending(used=True), {"cache", "by_head"}))


@pytest.mark.parametrize("names", [set(), {"by_head"}])
def test_what_is_not_named_stays(names: set[str]) -> None:
    before = appending(used=True)
    made = _static(appending(used=True), names)
    assert kinds(made) == kinds(before)
    assert made.graph.input[0] == before.graph.input[0]


def _static(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    static_caches(model, names, CAPACITY)
    return model


def test_attention_is_not_asked_for_a_softmax_in_fp32() -> None:
    nodes = [
        helper.make_node("Attention", ["q", "k", "v"], ["y"], softmax_precision=1, scale=0.5),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "small", [], []))
    drop_softmax_precision(model)
    assert [a.name for a in model.graph.node[0].attribute] == ["scale"]
    assert kinds(model) == ["Attention", "Identity"]
