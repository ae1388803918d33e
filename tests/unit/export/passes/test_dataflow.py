"""Who reads what in a graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto, helper

from export.passes.dataflow import live_nodes, users_by_value
from tests.unit.export.passes.small_graph import small_graph

FEED = {"x": np.ones(2, np.float32)}

node = helper.make_node
NODES = [
    node("Relu", ["x"], ["a"]),
    node("Split", ["a"], ["b", "c"], num_outputs=2),
    node("Add", ["b", "b"], ["d"]),
    node("Neg", ["c"], ["e"]),
]


def test_users_are_by_value_and_once_for_each_reading() -> None:
    users = users_by_value(small_graph(NODES, FEED, ["d"]).graph)
    found = {name: [each.op_type for each in readers] for name, readers in users.items()}
    assert found == {
        "x": ["Relu"],
        "a": ["Split"],
        "b": ["Add", "Add"],
        "c": ["Neg"],
        "d": [],
        "e": [],
    }


def test_nodes_that_no_output_needs_are_gone_and_the_others_in_order() -> None:
    assert live_nodes(NODES, {"d"}) == NODES[:3]
    assert live_nodes(NODES, {"e"}) == [NODES[0], NODES[1], NODES[3]]
    assert live_nodes(NODES, {"c"}) == NODES[:2]
    assert live_nodes(NODES, set()) == []


@st.composite
def graphs(draw: st.DrawFn) -> list[NodeProto]:
    """Nodes that read what stands before them."""
    nodes: list[NodeProto] = []
    for number in range(draw(st.integers(1, 8))):
        read = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=2))
        nodes.append(node("Any", [f"v{i}" for i in read], [f"v{number}"]))
    return nodes


@given(graphs(), st.data())
def test_what_is_live_is_all_that_an_output_leads_back_to(
    nodes: list[NodeProto], data: st.DataObject
) -> None:
    outputs = data.draw(st.sets(st.sampled_from([each.output[0] for each in nodes])))
    live = live_nodes(list(nodes), set(outputs))
    made = {each.output[0] for each in live}
    assert outputs <= made
    assert all(name in made or name == "v-1" for each in live for name in each.input)
    read = {name for each in live for name in each.input} | outputs
    assert made <= read
