"""Which residuals, norms and roundings become one operator, and that they compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.graphs.lowering import fuse
from export.passes.domains import MACARON
from export.passes.fusing.rows.norms import fuse_rms_norms
from tests.unit.export.passes.small_graph import check_fused, small_graph

ROWS, DIM = 3, 8
CONSTANTS = {
    "weight": np.linspace(0.5, 1.5, DIM, dtype=np.float32),
    "bias": np.linspace(-1, 1, DIM, dtype=np.float32),
    "axis": np.array([1]),
    "least": np.array(1e-8, np.float32),
    "level": np.array(1 / 127, np.float32),
    "zeros": np.full(ROWS, 128, np.uint8),
    "zero": np.array(128, np.uint8),
    "matrix": np.random.default_rng(0).standard_normal((DIM, 2)).astype(np.float32),
}
SHAPES = {"scales": (ROWS, 1), "read": (ROWS, 2)}
X, Y = np.random.default_rng(1).standard_normal((2, ROWS, DIM)).astype(np.float32)
XY, BY_RMS = {"x": X, "y": Y}, {"RMSNormalization": fuse_rms_norms}

NORM = [
    helper.make_node("Add", ["x", "y"], ["total"]),
    helper.make_node("LayerNormalization", ["total", "weight", "bias"], ["norm"]),
]
ZEROS = [
    helper.make_node("Shape", ["norm"], ["height"], end=1),
    helper.make_node("Expand", ["zero", "height"], ["made_zeros"]),
]
READER = helper.make_node("MatMul", ["norm", "matrix"], ["read"])


def rounding(zeros: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Abs", ["norm"], ["size"]),
        helper.make_node("ReduceMax", ["size", "axis"], ["peak"], keepdims=0),
        helper.make_node("Max", ["peak", "least"], ["clamped"]),
        helper.make_node("Mul", ["clamped", "level"], ["scale"]),
        helper.make_node("QuantizeLinear", ["norm", "scale", zeros], ["u8"], axis=0),
        helper.make_node("Unsqueeze", ["scale", "axis"], ["scales"]),
    ]


@pytest.mark.parametrize(
    ("nodes", "outputs", "called"),
    [
        ([*NORM, *rounding("zeros")], ["u8", "scales", "total"], {"AddNormQuantizeRows"}),
        ([*NORM, *rounding("zeros")], ["u8", "scales", "norm"], {"AddPostNormQuantizeRows"}),
        # what reads the norm comes before the rounding ends
        (
            [*NORM, READER, *rounding("zeros")],
            ["u8", "scales", "read"],
            {"AddPostNorm", "QuantizeRows"},
        ),
        # the zero points are made by the norm's own number of rows
        (
            [*NORM, *ZEROS, *rounding("made_zeros")],
            ["u8", "scales", "norm"],
            {"AddPostNorm", "QuantizeRows"},
        ),
    ],
    ids=["the sum goes on", "the norm goes on", "read before", "its own zero points"],
)
def test_a_group_is_one_operator_where_it_can_be(
    nodes: list[onnx.NodeProto], outputs: list[str], called: set[str]
) -> None:
    kinds = {"u8": TensorProto.UINT8}
    graph = helper.make_graph(
        nodes,
        "norms",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, DIM]) for name in "xy"],
        [
            helper.make_tensor_value_info(
                n, kinds.get(n, TensorProto.FLOAT), SHAPES.get(n, (ROWS, DIM))
            )
            for n in outputs
        ],
        [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    before = run(model)
    fuse(model)
    onnx.checker.check_model(model)
    assert {node.op_type for node in model.graph.node if node.domain == MACARON} == called
    for found, wanted in zip(run(model), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def run(model: onnx.ModelProto) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {"x": X, "y": Y}))


def rms_norm(weight: str = "weight") -> list[onnx.NodeProto]:
    return [
        helper.make_node("Add", ["x", "y"], ["total"]),
        helper.make_node("RMSNormalization", ["total", weight], ["norm"], axis=-1, epsilon=1e-6),
    ]


@pytest.mark.parametrize("outputs", [["norm", "total"], ["norm"]])
def test_a_residual_goes_with_its_rms_norm(outputs: list[str]) -> None:
    model = small_graph(rms_norm(), XY, outputs, CONSTANTS)
    (call,) = check_fused(model, XY, BY_RMS, ["AddRmsNorm"])
    assert list(call.input) == ["x", "y", "weight"]
    assert list(call.output) == ["norm", "total"]
    assert [helper.get_attribute_value(a) for a in call.attribute] == [pytest.approx(1e-6)]


def test_other_rms_norms_stay() -> None:
    """Of a bias, of one value, of both axes, and with a weight that is no constant."""
    bias = [helper.make_node("Add", ["x", "bias"], ["total"]), rms_norm()[1]]
    alone = [helper.make_node("Identity", ["x"], ["total"]), rms_norm()[1]]
    computed = [helper.make_node("Neg", ["weight"], ["negative"]), *rms_norm("negative")]
    both = rms_norm()
    both[1].attribute[0].i = 0
    for nodes in (bias, alone, computed, both):
        check_fused(small_graph(nodes, XY, ["norm"], CONSTANTS), XY, BY_RMS, [])
