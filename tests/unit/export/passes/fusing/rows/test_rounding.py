"""Rows, and what GELU gives, that are rounded to 8 bits in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.rows.rounding import fuse_gelu_rounding, fuse_row_rounding
from tests.unit.export.passes.small_graph import check_fused, small_graph

CONSTANTS = {
    "axis": np.array([1]),
    "least": np.array(1e-8, np.float32),
    "level": np.array(1 / 127, np.float32),
    "zeros": np.full(3, 128, np.uint8),
    "scale": np.array(0.02, np.float32),
    "zero": np.array(128, np.uint8),
}
FEED = {
    "x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32),
    "given_scale": np.array(0.02, np.float32),
}

node = helper.make_node
RELU = node("Relu", ["x"], ["active"])
GELU = node("Gelu", ["x"], ["active"])
ROUGH_GELU = node("Gelu", ["x"], ["active"], approximate="tanh")


def rounding(rows: str, *, signed: bool = True) -> list[NodeProto]:
    absolute = [node("Abs", [rows], ["size"])] if signed else []
    return [
        *absolute,
        node("ReduceMax", ["size" if signed else rows, "axis"], ["peak"], keepdims=0),
        node("Max", ["peak", "least"], ["clamped"]),
        node("Mul", ["clamped", "level"], ["own_scale"]),
        node("QuantizeLinear", [rows, "own_scale", "zeros"], ["u8"], axis=0),
        node("Unsqueeze", ["own_scale", "axis"], ["scales"]),
    ]


@pytest.mark.parametrize(
    ("nodes", "outputs", "call", "rows"),
    [
        (rounding("x"), [], "QuantizeRows", "x"),
        ([RELU, *rounding("active", signed=False)], [], "QuantizeReluRows", "x"),
        ([RELU, *rounding("active", signed=False), node("Neg", ["active"], ["other"])], ["other"],
         "QuantizeReluRows", "x"),
        ([GELU, *rounding("active")], [], "GeluQuantizeRows", "x"),
        ([ROUGH_GELU, *rounding("active")], [], "QuantizeRows", "active"),
        ([GELU, *rounding("active"), node("Neg", ["active"], ["other"])], ["other"],
         "QuantizeRows", "active"),
    ],
    ids=["alone", "after ReLU", "ReLU is read, too", "after GELU", "after another GELU",
         "GELU is read, too"],
)  # fmt: skip
def test_rounding_by_rows_is_one_operator(
    nodes: list[NodeProto], outputs: list[str], call: str, rows: str
) -> None:
    model = small_graph(nodes, FEED, ["u8", "scales", *outputs], CONSTANTS)
    (found,) = check_fused(model, FEED, {"QuantizeLinear": fuse_row_rounding}, [call])
    assert list(found.input) == [rows, "zeros", "least", "level"]
    assert list(found.output) == ["u8", "scales"]


def test_rounding_whose_scales_nobody_reads_stays() -> None:
    model = small_graph(rounding("x")[:-1], FEED, ["u8"], CONSTANTS)
    check_fused(model, FEED, {"QuantizeLinear": fuse_row_rounding}, [])


def test_rounding_by_the_peaks_of_something_else_stays() -> None:
    nodes = [node("Neg", ["x"], ["other"]), node("Abs", ["other"], ["size"]), *rounding("x")[1:]]
    model = small_graph(nodes, FEED, ["u8", "scales"], CONSTANTS)
    check_fused(model, FEED, {"QuantizeLinear": fuse_row_rounding}, [])


def rounded(scale: str) -> NodeProto:
    return node("QuantizeLinear", ["active", scale, "zero"], ["u8"])


def test_gelu_that_is_only_rounded_is_one_operator() -> None:
    model = small_graph([GELU, rounded("scale")], FEED, ["u8"], CONSTANTS)
    (call,) = check_fused(model, FEED, {"Gelu": fuse_gelu_rounding}, ["GeluQuantize"])
    assert list(call.input) == ["x", "scale", "zero"]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([ROUGH_GELU, rounded("scale")], ["u8"]),
        ([GELU, rounded("given_scale")], ["u8"]),
        ([GELU, rounded("scale")], ["u8", "active"]),
    ],
    ids=["another GELU", "no constant", "GELU is read"],
)
def test_gelu_of_another_form_stays(nodes: list[NodeProto], outputs: list[str]) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    check_fused(model, FEED, {"Gelu": fuse_gelu_rounding}, [])
