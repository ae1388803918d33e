"""Convolutions along a hypothesis in standard operators, against their numbers one by one."""

from __future__ import annotations

import numpy as np
import onnx

from export.passes.int8.convolutions import lower_convolutions
from tests.unit.export.passes.small_convolution import DIM, FEED, convolution, convolved
from tests.unit.export.passes.small_graph import kinds, rewritten, run, small_graph


def test_standard_operators_compute_the_same() -> None:
    model = rewritten(convolution(), lower_convolutions)
    onnx.checker.check_model(model)
    assert all(not node.domain for node in model.graph.node)
    sums, appended = run(model, FEED)
    wanted_sums, wanted_appended = convolved()
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(appended, wanted_appended)


def test_layers_of_different_widths_have_one_body() -> None:
    narrow, wide = (rewritten(convolution(dim), lower_convolutions).graph for dim in (DIM, 10))
    assert list(narrow.node) == list(wide.node)
    assert list(narrow.initializer) == list(wide.initializer)


def test_other_nodes_are_left_to_other_rules() -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    model = small_graph(nodes, {"x": FEED["x"]}, ["y"])
    assert kinds(rewritten(model, lower_convolutions)) == ["Relu"]
