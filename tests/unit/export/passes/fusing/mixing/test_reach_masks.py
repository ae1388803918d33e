"""Masks of what a layer reaches in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.mixing.reach_masks import fuse_reach_masks
from tests.unit.export.passes.small_graph import check_fused, run, small_graph

CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "reach": np.array(3),
    "reaches": np.array([3]),
    "shown": np.array(0, np.float32),
    "never": np.array(-np.inf, np.float32),
    "low": np.array(-1e9, np.float32),
    "axis_1": np.array([1]),
    "axis_3": np.array([3]),
}
POSITIONS, SLOTS = np.array([[4, 5], [0, 1]]), np.array([[0, 1, 2, 3, 4, 5], [0, 1, 9, 9, 9, 9]])
VISIBLE = np.zeros((2, 1, 2, 6), np.float32)
VISIBLE[0, :, :, 4] = -np.inf
FEED = {"visible": VISIBLE, "positions": POSITIONS, "slots": SLOTS.reshape(2, 1, 6)}

node = helper.make_node


def mask(
    *, least: str = "zero", reach: str = "reach", hidden: str = "never", other: str = "distance"
) -> list[NodeProto]:
    return [
        node("Unsqueeze", ["positions", "axis_1"], ["by_head"]),
        node("Unsqueeze", ["by_head", "axis_3"], ["queries"]),
        node("Unsqueeze", ["slots", "axis_1"], ["keys"]),
        node("Sub", ["queries", "keys"], ["distance"]),
        node("Add", ["distance", "one"], ["farther"]),
        node("GreaterOrEqual", ["distance", least], ["is_past"]),
        node("Less", [other, reach], ["is_near"]),
        node("And", ["is_past", "is_near"], ["is_reached"]),
        node("Where", ["is_reached", "shown", hidden], ["reached"]),
        node("Add", ["visible", "reached"], ["y"]),
    ]


def test_what_a_layer_reaches_is_one_operator_that_knows_how_far() -> None:
    nodes = [each for each in mask() if each.output[0] != "farther"]
    model = small_graph(nodes, FEED, ["y"], CONSTANTS)
    distance = POSITIONS[:, None, :, None] - SLOTS[:, None, None, :]
    wanted = np.where((distance >= 0) & (distance < 3), VISIBLE, np.float32(-np.inf))
    np.testing.assert_array_equal(run(model, FEED)[0], wanted)
    (call,) = check_fused(model, FEED, {"Add": fuse_reach_masks}, ["ReachMask"])
    assert list(call.input) == ["visible", "positions", "slots"]
    assert [(a.name, a.i) for a in call.attribute] == [("reach", 3)]


@pytest.mark.parametrize(
    "changed",
    [
        {"least": "one"},
        {"reach": "reaches"},
        {"hidden": "low"},
        {"other": "farther"},
    ],
    ids=["not its own", "a reach with an axis", "no infinity", "two distances"],
)
def test_another_form_stays(changed: dict[str, str]) -> None:
    model = small_graph(mask(**changed), FEED, ["y"], CONSTANTS)
    check_fused(model, FEED, {"Add": fuse_reach_masks}, [])


def test_layers_of_different_reach_call_one_function() -> None:
    first = [each for each in mask() if each.output[0] != "farther"]
    second = []
    for each in first:
        twin = type(each)()
        twin.CopyFrom(each)
        renamed = {name: f"{name}_2" for part in first for name in part.output}
        twin.input[:] = [renamed.get(name, name) for name in each.input]
        twin.output[:] = [renamed[name] for name in each.output]
        second.append(twin)
    second[5].input[1] = "one"
    model = small_graph([*first, *second], FEED, ["y", "y_2"], CONSTANTS)
    calls = check_fused(model, FEED, {"Add": fuse_reach_masks}, ["ReachMask", "ReachMask"])
    assert [call.attribute[0].i for call in calls] == [3, 1]
