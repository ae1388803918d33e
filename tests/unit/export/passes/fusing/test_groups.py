"""How groups of nodes are found in a graph and replaced by calls."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.domains import MACARON
from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute
from tests.unit.export.passes.small_graph import (
    check_fused,
    constants_of,
    kinds,
    run,
    small_graph,
)

FEED = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
CONSTANTS = {
    "two": np.array(2, np.float32),
    "bias": np.array([1, 2, 3], np.float32),
    "matrix": np.ones((2, 3), np.float32),
}

node = helper.make_node
CHAIN = [
    node("Mul", ["x", "two"], ["double"]),
    node("Relu", ["double"], ["positive"]),
    node("Add", ["positive", "bias"], ["y"]),
]


def groups(nodes: list[NodeProto], *outputs: str) -> Groups:
    return Groups(small_graph(nodes, FEED, outputs, CONSTANTS))


def names(nodes: list[NodeProto] | None) -> list[str] | None:
    return None if nodes is None else [each.output[0] for each in nodes]


def fuse_chain(found: Groups, end: NodeProto) -> None:
    chain = found.chain_before(end.input[0], ("Relu", "Mul"))
    if chain is not None:
        group = [*chain[::-1], end]
        found.replace(group, Call("Chain", (chain[1].input[0], end.input[1]), end.output))


def test_chains_are_followed_in_both_directions() -> None:
    found = groups(CHAIN, "y")
    assert names(found.chain_before("y", ("Add", "Relu"))) == ["y", "positive"]
    assert names(found.chain_after("double", ("Relu", "Add"))) == ["positive", "y"]
    assert found.chain_before("y", ("Add", "Mul")) is None
    assert found.chain_before("x", ("Mul",)) is None
    assert found.chain_after("double", ("Relu", "Mul")) is None


def test_a_chain_goes_no_further_than_where_others_read() -> None:
    assert groups(CHAIN, "y", "positive").chain_after("double", ("Relu", "Add")) is None
    twice = [*CHAIN, node("Neg", ["positive"], ["z"])]
    assert groups(twice, "y", "z").chain_after("double", ("Relu", "Add")) is None
    assert not groups(CHAIN, "y").used_once("y")


def test_what_lies_between_values_is_in_order() -> None:
    nodes = [*CHAIN, node("Neg", ["x"], ["z"])]
    found = groups(nodes, "y", "z")
    assert names(found.between(["x"], ["y"])) == ["double", "positive", "y"]
    assert names(found.between(["double"], ["y"])) == ["positive", "y"]


@pytest.mark.parametrize(("other", "bias"), [("bias", True), ("matrix", False), ("x", False)])
def test_a_bias_is_a_constant_of_one_axis(other: str, bias: bool) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Add", [other, "r"], ["y"])]
    found = groups(nodes, "y").bias_after("r")
    assert (found is not None and found[1] == other) is bias


def test_numbers_are_constants_without_axes() -> None:
    found = groups(CHAIN, "y")
    assert found.number("two") == 2.0
    assert found.number("bias") is None
    assert found.number("x") is None


def test_integer_attributes_are_0_where_there_are_none() -> None:
    split = node("Split", ["x"], ["y"], axis=1)
    assert integer_attribute(split, "axis") == 1
    assert integer_attribute(split, "num_outputs") == 0


def test_a_group_is_a_call_of_a_function_and_its_constants_are_gone() -> None:
    model = small_graph(CHAIN, FEED, ["y"], CONSTANTS)
    wanted = np.maximum(FEED["x"] * 2, 0) + CONSTANTS["bias"]
    found = Groups(model)
    found.each("Add", fuse_chain)
    found.finish()
    assert kinds(model) == ["Chain"]
    assert constants_of(model).keys() == {"bias"}
    assert {entry.domain for entry in model.opset_import} >= {MACARON}
    np.testing.assert_array_equal(run(model, FEED)[0], wanted)


def test_two_groups_of_one_form_share_a_function_and_one_of_another_form_stays() -> None:
    def again(number: int, factor: str) -> list[NodeProto]:
        return [
            node("Mul", ["x", factor], [f"double_{number}"]),
            node("Relu", [f"double_{number}"], [f"positive_{number}"]),
            node("Add", [f"positive_{number}", "bias"], [f"y_{number}"]),
        ]

    nodes = [*CHAIN, *again(2, "two"), *again(3, "bias")]
    model = small_graph(nodes, FEED, ["y", "y_2", "y_3"], CONSTANTS)
    check_fused(model, FEED, {"Add": fuse_chain}, ["Chain", "Chain"])


def test_what_others_read_stays_with_what_it_needs() -> None:
    nodes = [*CHAIN, node("Neg", ["positive"], ["z"])]
    model = small_graph(nodes, FEED, ["y", "z"], CONSTANTS)
    check_fused(model, FEED, {"Add": fuse_chain}, ["Chain"])
    found = Groups(model)
    found.each("Add", fuse_chain)
    found.finish()
    assert kinds(model) == ["Mul", "Relu", "Chain", "Neg"]


def test_a_group_stays_that_reads_from_outside_or_is_read_before_its_end() -> None:
    def fuse_without_bias(found: Groups, end: NodeProto) -> None:
        relu = found.producers[end.input[0]]
        found.replace([relu, end], Call("Open", (), end.output))

    model = small_graph(CHAIN, FEED, ["y"], CONSTANTS)
    check_fused(model, FEED, {"Add": fuse_without_bias}, [])

    def fuse_both(found: Groups, end: NodeProto) -> None:
        group = [found.producers["double"], end]
        found.replace(group, Call("Early", ("x", *end.input), ("double", *end.output)))

    check_fused(model, FEED, {"Add": fuse_both}, [])


def test_a_node_that_is_in_a_group_already_is_not_looked_at() -> None:
    model = small_graph(CHAIN, FEED, ["y"], CONSTANTS)
    found = Groups(model)
    found.each("Add", fuse_chain)
    seen: list[str] = []
    found.each("Chain", lambda _, end: seen.append(end.op_type))
    found.each("Relu", lambda _, end: seen.append(end.op_type))
    assert seen == ["Chain"]


@pytest.mark.parametrize(
    ("sizes", "last"),
    [
        (["one", "height", "three"], 3),
        (["one", "one", "three"], 3),
        (["one", "three"], None),
        (["one", "one", "both"], None),
        (["both", "one", "three"], None),
        (["whole", "one", "three"], None),
        (["one", "three", "height"], None),
    ],
)
def test_three_axes_are_known_by_their_sizes(sizes: list[str], last: int | None) -> None:
    nodes = [
        node("Shape", ["x"], ["height"], start=0, end=1),
        node("Shape", ["x"], ["whole"]),
        node("Concat", sizes, ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"one": np.array([1]), "three": np.array([3]), "both": np.array([2, 3])}
    assert Groups(small_graph(nodes, FEED, ["y"], constants)).last_of_three("y") == last


def test_one_axis_of_a_squeeze_is_known() -> None:
    constants = {"first": np.array([0]), "both": np.array([0, 1])}
    nodes = [
        node("Unsqueeze", ["x", "first"], ["taller"]),
        node("Unsqueeze", ["x", "both"], ["tallest"]),
        node("Squeeze", ["taller"], ["y"]),
    ]
    found = Groups(small_graph(nodes, FEED, ["y"], constants))
    assert [found.axis_of(each) for each in nodes] == [0, None, None]
