"""The graph that shows whether a machine computes int8 products exactly."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from export.arithmetic.quantize import ZERO_POINT
from export.passes.domains import MICROSOFT


def probe_model() -> onnx.ModelProto:
    """A graph without inputs: an int8 product of extreme values, and its exact result."""
    generator = np.random.default_rng(0)
    rows = generator.choice(np.array([0, 1, 254, 255], dtype=np.uint8), (8, 256))
    weight = generator.choice(np.array([-127, -126, 126, 127], dtype=np.int8), (256, 64))
    wanted = (rows.astype(np.float64) - ZERO_POINT) @ weight.astype(np.float64)
    constants = {
        "rows": rows,
        "weight": weight,
        "scales": np.ones((8, 1), np.float32),
        "weight_scale": np.ones(64, np.float32),
        "zero_point": np.asarray(np.uint8(ZERO_POINT)),
        "wanted_value": wanted.astype(np.float32),
    }
    operands = ["rows", "weight", "scales", "weight_scale", "zero_point"]
    nodes = [
        helper.make_node("MatMulIntegerToFloat", operands, ["found"], domain=MICROSOFT),
        helper.make_node("Identity", ["wanted_value"], ["wanted"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, 64])
        for name in ("found", "wanted")
    ]
    graph = helper.make_graph(
        nodes, "probe", [], outputs, [numpy_helper.from_array(a, n) for n, a in constants.items()]
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="macaron")
