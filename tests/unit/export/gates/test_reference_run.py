"""Parts of graphs in ONNX's own reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from export.arithmetic.weight_only import BLOCK
from export.gates.reference_run import evaluate
from export.passes.quantize_weights import quantize_weights
from tests.unit.export.passes.small_graph import kinds, run, small_graph

GENERATOR = np.random.default_rng(0)
FEED = {
    "x": GENERATOR.standard_normal((2, BLOCK)).astype(np.float16),
    "z": np.ones(3, np.float16),
}
WEIGHT = (GENERATOR.standard_normal((BLOCK, 4)) * BLOCK**-0.5).astype(np.float16)

node = helper.make_node


def test_outputs_are_found_by_what_they_need_alone() -> None:
    nodes = [
        node("MatMul", ["x", "weight"], ["y"]),
        node("Unknown", ["z"], ["choice"], domain="nobody.has.it"),
        node("Neg", ["y"], ["other"]),
    ]
    model = small_graph(nodes, FEED, ["y", "choice", "other"], {"weight": WEIGHT})
    found = evaluate(model, ["y"], {"x": FEED["x"], "unread": FEED["z"]})
    assert kinds(model) == ["MatMul"]
    np.testing.assert_allclose(found["y"], FEED["x"] @ WEIGHT, rtol=1e-2, atol=1e-2)


def test_weights_in_blocks_are_multiplied_as_onnx_runtime_does() -> None:
    model = small_graph([node("MatMul", ["x", "weight"], ["y"])], FEED, ["y"], {"weight": WEIGHT})
    quantized = quantize_weights(model)
    (wanted,) = run(quantized, FEED)
    found = evaluate(quantized, ["y"], FEED)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("error")
def test_what_overflows_shows_in_the_result_and_nowhere_else() -> None:
    model = small_graph([node("Mul", ["x", "x"], ["y"])], FEED, ["y"])
    found = evaluate(model, ["y"], {"x": np.full((2, BLOCK), 6e4, np.float16)})
    assert np.isinf(found["y"]).all()
