"""Which int8 products take their bias, or the product of what rounding left, into one operator, and
that they compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.graphs.lowering import fuse
from export.passes.domains import MACARON, MICROSOFT
from serving.runtime.ort import EXACT_PRODUCTS

ROWS, INPUTS, OUTPUTS = 3, 8, 5
GENERATOR = np.random.default_rng(0)
CONSTANTS = {
    "weight": GENERATOR.integers(-127, 128, (INPUTS, OUTPUTS), dtype=np.int8),
    "weight_scales": GENERATOR.random(OUTPUTS).astype(np.float32),
    "zero": np.array(128, np.uint8),
    "one_scale": np.array(0.02, np.float32),
    "table": GENERATOR.integers(-127, 128, (OUTPUTS, INPUTS), dtype=np.int8),
    "bias": GENERATOR.standard_normal(OUTPUTS).astype(np.float32),
}
FEED = {
    "x": GENERATOR.integers(0, 256, (2 * ROWS, INPUTS), dtype=np.uint8),
    "scales": GENERATOR.random((2 * ROWS, 1)).astype(np.float32),
}
BIAS = helper.make_node("Add", ["sum", "bias"], ["y"])
HALVES = [
    helper.make_node("Split", ["product"], ["first", "rest"], num_outputs=2),
    helper.make_node("Add", ["first", "rest"], ["sum"]),
]


TURN = helper.make_node("Transpose", ["table"], ["turned"])


def product(
    output: str, scales: str = "scales", weight: str = "weight", *bias: str
) -> onnx.NodeProto:
    operands = ["x", weight, scales, "weight_scales", "zero", *bias]
    return helper.make_node("MatMulIntegerToFloat", operands, [output], domain=MICROSOFT)


def graph(nodes: list[onnx.NodeProto], output: str) -> onnx.ModelProto:
    proto = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info("x", TensorProto.UINT8, [2 * ROWS, INPUTS]),
            helper.make_tensor_value_info("scales", TensorProto.FLOAT, [2 * ROWS, 1]),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [None, OUTPUTS])],
        [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto) -> NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(EXACT_PRODUCTS, "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, FEED)
    return np.asarray(found)


@pytest.mark.parametrize(
    ("nodes", "output", "calls"),
    [
        ([product("sum"), BIAS], "y", ["BiasedProduct"]),
        ([product("product"), *HALVES], "sum", ["WideProduct"]),
        ([product("product"), *HALVES, BIAS], "y", ["BiasedWideProduct"]),
        ([TURN, product("sum", weight="turned")], "sum", ["TiedProduct"]),
        ([TURN, product("sum", weight="turned"), BIAS], "y", ["BiasedTiedProduct"]),
        (
            [TURN, product("sum", "one_scale", "turned", "", "bias")],
            "sum",
            ["BiasedTiedProduct"],
        ),
        ([TURN, product("product", weight="turned"), *HALVES], "sum", ["TiedWideProduct"]),
        (
            [TURN, product("product", weight="turned"), *HALVES, BIAS],
            "y",
            ["BiasedTiedWideProduct"],
        ),
        ([product("sum")], "sum", []),
        ([product("sum", "one_scale"), BIAS], "y", []),  # ONNX Runtime's own has that
    ],
)
def test_products_that_become_one_operator(
    nodes: list[onnx.NodeProto], output: str, calls: list[str]
) -> None:
    wanted = run(graph(nodes, output))
    model = graph(nodes, output)
    fuse(model)
    assert [node.op_type for node in model.graph.node if node.domain == MACARON] == calls
    assert len(model.graph.node) == (1 if calls else len(nodes))
    np.testing.assert_array_equal(run(model), wanted)
