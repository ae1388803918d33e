"""The walk that writes a new graph, in which each form of a value is made once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from export.arithmetic.quantize import ALIKE
from export.errors import ExportError
from export.passes.domains import MICROSOFT
from export.passes.int8.rewriting import Rewriting
from tests.unit.export.passes.small_graph import constants_of, kinds, run, small_graph

FEED = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "ids": np.array([[1, 2, 0]])}
CONSTANTS = {"weight": np.ones((4, 4), np.float32), "unread": np.ones(3, np.float32)}
AXES = {"x": ("B", "Q", 4), "y": ("B", "Q", 4), "z": ("B", "Q", 4), "inner": ("B", "Q", "N")}

node = helper.make_node
RELU = node("Relu", ["x"], ["y"], name="first")
NEG = node("Neg", ["y"], ["z"], name="n0")


def rewriting(
    nodes: list[NodeProto], *outputs: str, flat: frozenset[str] = frozenset(), int8: bool = False
) -> Rewriting:
    model = small_graph(nodes, FEED, outputs, CONSTANTS, AXES)
    return Rewriting(model, scaled={}, int8=int8, flat_outputs=flat, products=ALIKE)


def relu_flat(graph: Rewriting, found: NodeProto) -> bool:
    if found.op_type != "Relu":
        return False
    graph.add("Relu", [graph.flatten(found.input[0])], graph.flat_name(found.output[0]))
    return True


def test_nodes_that_no_rule_knows_stay() -> None:
    made = rewriting([RELU, NEG], "z").run([])
    assert list(made.graph.node) == [RELU, NEG]
    assert not constants_of(made)


def test_the_first_rule_that_knows_a_node_has_it() -> None:
    asked: list[str] = []

    def watch(graph: Rewriting, found: NodeProto) -> bool:
        del graph
        asked.append(found.op_type)
        return False

    rewriting([RELU, NEG], "z").run([relu_flat, watch])
    assert asked == ["Neg"]


def test_a_value_that_exists_flat_is_reshaped_for_who_wants_its_own_shape() -> None:
    made = rewriting([RELU, NEG], "z").run([relu_flat])
    assert [kind for kind in kinds(made) if kind in ("Reshape", "Relu", "Neg")] == [
        "Reshape",
        "Relu",
        "Reshape",
        "Neg",
    ]
    np.testing.assert_array_equal(run(made, FEED)[0], -FEED["x"])
    assert len({each.name for each in made.graph.node}) == len(made.graph.node)


def test_each_form_is_made_once() -> None:
    nodes = [RELU, NEG, node("Abs", ["y"], ["a"])]
    made = rewriting(nodes, "z", "a").run([relu_flat])
    assert kinds(made).count("Reshape") == 2


def test_a_flat_output_is_given_flat_and_described_so() -> None:
    made = rewriting([RELU], "y", flat=frozenset(["y"])).run([relu_flat])
    assert kinds(made) == ["Reshape", "Relu"]
    assert len(made.graph.output[0].type.tensor_type.shape.dim) == 2
    np.testing.assert_array_equal(run(made, FEED)[0], FEED["x"].reshape(6, 4))


def test_a_flat_output_that_is_read_in_its_own_shape_is_refused() -> None:
    with pytest.raises(ExportError, match="y is a flat output and cannot also be read"):
        rewriting([RELU, NEG], "y", "z", flat=frozenset(["y"])).run([relu_flat])


def test_what_nothing_reads_is_dropped() -> None:
    def with_more(graph: Rewriting, found: NodeProto) -> bool:
        graph.add("Neg", [found.input[0]], "nobody_s")
        graph.constant(np.array(1), "nothing_s")
        return False

    made = rewriting([RELU], "y").run([with_more])
    assert kinds(made) == ["Relu"]
    assert not constants_of(made)


def test_covered_nodes_are_part_of_what_an_earlier_one_has_become() -> None:
    def both(graph: Rewriting, found: NodeProto) -> bool:
        graph.covered.add("z")
        graph.add("Sub", [found.input[0], found.input[0]], "z")
        graph.mark_shaped("z")
        return True

    assert kinds(rewriting([RELU, NEG], "z").run([both])) == ["Sub"]


@pytest.mark.parametrize(
    ("found", "alike"),
    [
        (node("Relu", ["x"], ["y"]), True),
        (node("Add", ["x", "x"], ["y"]), True),
        (node("MatMul", ["x", "weight"], ["y"]), True),
        (node("Add", ["x", "weight"], ["y"]), False),
        (node("Add", ["x", "ids"], ["y"]), False),
        (node("Relu", ["x"], ["inner"]), False),
        (node("Relu", ["ids"], ["y"]), False),
    ],
    ids=["one", "two", "product", "a matrix", "others' rows", "no width", "no rows"],
)
def test_rows_are_treated_alike_where_each_input_has_them(found: NodeProto, alike: bool) -> None:
    assert rewriting([RELU], "y").treats_rows_alike(found) is alike


def test_values_that_can_be_laid_flat_have_three_axes_and_a_width() -> None:
    graph = rewriting([RELU, node("Relu", ["x"], ["inner"])], "y", "inner")
    assert graph.shapes.keys() == {"x", "y", "z"}  # not `inner`, whose last axis is open


def test_sizes_are_read_from_inputs_once() -> None:
    graph = rewriting([RELU], "y")
    name = graph.shape_vector(("Q", 4))
    assert graph.shape_vector(("Q", 4)) == name
    graph.append(node("Reshape", ["x", name], ["y"]))
    graph.outputs = {"y"}
    made = graph.run([lambda *_: True])
    assert kinds(made) == ["Shape", "Concat", "Reshape"]
    np.testing.assert_array_equal(run(made, FEED)[0], FEED["x"])


@pytest.mark.parametrize("int8", [False, True])
def test_only_int8_graphs_have_operators_of_others(int8: bool) -> None:
    made = rewriting([RELU], "y", int8=int8).run([])
    assert [entry.domain for entry in made.opset_import] == ["", *([MICROSOFT] if int8 else [])]
    onnx.checker.check_model(made)
