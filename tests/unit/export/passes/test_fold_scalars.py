"""Scalar factors folded into constants, against ONNX's reference evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from export.passes.fold_scalars import fold_scalars, original_of

FLOAT = onnx.TensorProto.FLOAT
WEIGHT = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
BIAS = np.arange(6, dtype=np.float32)
X = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)


def graph(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    constants = {"W": WEIGHT, "b": BIAS, "factor": np.asarray(np.float32(0.3))}
    constants |= {"heads": np.array([0, 0, 6, 1]), "mixed": np.array([3, 2, 6, 1])}
    proto = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", FLOAT, [2, 3, 4])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


PRODUCT = [
    helper.make_node("MatMul", ["x", "W"], ["p"]),
    helper.make_node("Add", ["p", "b"], ["y"]),
]
SPLIT = helper.make_node("Split", ["y"], ["q", "k", "v"], axis=2, num_outputs=3)


def by_head(shape: str, order: tuple[int, ...]) -> list[onnx.NodeProto]:
    """Queries, keys and values as three parts of one value that is laid out anew."""
    return [
        helper.make_node("Reshape", ["y", shape], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=order),
        helper.make_node("Split", ["t"], ["q", "k", "v"], axis=1, num_outputs=3),
        helper.make_node("Mul", ["k", "factor"], ["z"]),
    ]


def run(model: onnx.ModelProto) -> list[NDArray[Any]]:
    return list(ReferenceEvaluator(model).run(None, {"x": X}))


@pytest.mark.parametrize(
    ("nodes", "outputs", "folded"),
    [
        ([*PRODUCT, helper.make_node("Mul", ["y", "factor"], ["z"])], ["z"], True),
        ([*PRODUCT, SPLIT, helper.make_node("Mul", ["k", "factor"], ["z"])], ["q", "z", "v"], True),
        ([*PRODUCT, *by_head("heads", (0, 2, 1, 3))], ["q", "z", "v"], True),
        # A part is no range of columns there.
        ([*PRODUCT, *by_head("heads", (2, 1, 0, 3))], ["q", "z", "v"], False),
        ([*PRODUCT, *by_head("mixed", (0, 2, 1, 3))], ["q", "z", "v"], False),
        ([*PRODUCT, *by_head("heads", (0, 2, 1, 3))], ["q", "z", "v", "t"], False),
        # What is scaled is wanted without its factor as well.
        ([*PRODUCT, helper.make_node("Mul", ["y", "factor"], ["z"])], ["z", "y"], False),
        ([*PRODUCT, helper.make_node("Mul", ["y", "factor"], ["z"])], ["z", "p"], False),
        ([*PRODUCT, SPLIT, helper.make_node("Mul", ["q", "factor"], ["z"])], ["z", "q"], False),
        ([*PRODUCT, SPLIT, helper.make_node("Mul", ["q", "factor"], ["z"])], ["z", "y"], False),
    ],
)
def test_a_factor_goes_into_the_weights_where_nothing_else_reads_them(
    nodes: list[onnx.NodeProto], outputs: list[str], folded: bool
) -> None:
    last = helper.make_node("Identity", ["z"], ["end"])  # as the rest of a model reads it
    model = graph([*nodes, last], [*outputs, "end"])
    wanted = run(model)
    scaled = fold_scalars(model)
    assert any(node.op_type == "Mul" for node in model.graph.node) is not folded
    for one, other in zip(wanted, run(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    assert bool(scaled) is folded
    for name in scaled:
        original, factor = original_of(name, scaled, constants)
        np.testing.assert_allclose(original * factor, constants[name], rtol=1e-6)
        assert original is constants["W"] or original is constants["b"]
