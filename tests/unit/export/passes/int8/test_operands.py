"""Rows and weights in integers, against numpy and against the twin in PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from export.arithmetic.quantize import ALIKE, Products, StaticRange, quantize_columns, weight_key
from export.passes.fold_scalars import Scaled
from export.passes.int8.operands import (
    quantize_rows,
    quantize_statically,
    quantize_weight,
    row_parts,
)
from export.passes.int8.rewriting import Rewriting
from tests.unit.export.passes.small_graph import kinds, run, small_graph

FEED = {"x": np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)}
FEED["x"][1, 2] = 0  # a row of zeros has a scale, too
ROWS = FEED["x"].reshape(6, 8)
WEIGHT = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)


def rewriting(products: Products = ALIKE, scaled: dict[str, Scaled] | None = None) -> Rewriting:
    relu = onnx.helper.make_node("Relu", ["x"], ["r"])
    axes = {"x": ("B", "Q", 8), "r": ("B", "Q", 8)}
    constants = {"weight": WEIGHT, "original": WEIGHT / np.float32(3)}
    model = small_graph([relu], FEED, ["r"], constants, axes)
    return Rewriting(
        model, scaled=scaled or {}, int8=True, flat_outputs=frozenset(), products=products
    )


def given(graph: Rewriting, *names: str) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The graph so far with these values as its outputs, and what they are."""
    for name in names:
        graph.outputs.add(name)
    made = graph.run([])
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return made, run(made, FEED)[1:]


def test_rows_are_rounded_by_their_own_peaks() -> None:
    graph = rewriting()
    _, (u8, scales) = given(graph, *quantize_rows(graph, graph.flatten("x"), ("B", "Q")))
    wanted = np.maximum(np.abs(ROWS).max(1, keepdims=True), 1e-8) / 127
    np.testing.assert_allclose(scales, wanted, rtol=1e-6)
    assert (u8.dtype, u8[5].tolist()) == (np.uint8, [128] * 8)
    np.testing.assert_allclose((u8.astype(int) - 128) * scales, ROWS, atol=scales.max() / 2 + 1e-6)


def test_a_value_is_rounded_once_for_all_who_ask() -> None:
    graph = rewriting()
    flat = graph.flatten("x")
    assert quantize_rows(graph, flat, ("B", "Q")) == quantize_rows(graph, flat, ("B", "Q"))
    assert kinds(given(graph, *quantize_rows(graph, flat, ("B", "Q")))[0]).count("Abs") == 1


def test_values_of_as_many_rows_share_their_zero_points() -> None:
    graph = rewriting()
    flat, other = graph.flatten("x"), graph.flatten("r")
    names = [*quantize_rows(graph, flat, ("B", "Q")), *quantize_rows(graph, other, ("Q", "B"))]
    made, _ = given(graph, *names)
    assert kinds(made).count("Expand") == 1


def test_what_relu_gives_needs_no_absolute_values() -> None:
    graph = rewriting()
    flat = graph.flatten("r")
    graph.relu_inputs[flat] = "x"
    made, (u8, scales) = given(graph, *quantize_rows(graph, flat, ("B", "Q")))
    assert "Abs" not in kinds(made)
    wanted = np.maximum(ROWS, 0)
    np.testing.assert_allclose((u8.astype(int) - 128) * scales, wanted, atol=scales.max())


def test_16_bits_are_what_8_have_left_and_that_rounded_too() -> None:
    narrow, wide = rewriting(), rewriting(Products(wide=True))
    assert len(row_parts(narrow, narrow.flatten("x"), ("B", "Q"))) == 1
    parts = row_parts(wide, wide.flatten("x"), ("B", "Q"))
    _, values = given(wide, *(name for part in parts for name in part))
    total = sum((values[i].astype(int) - 128) * values[i + 1] for i in (0, 2))
    np.testing.assert_allclose(total, ROWS, atol=1e-4)


@pytest.mark.parametrize(("signed", "middle"), [(True, 128), (False, 0)])
def test_a_static_range_gives_one_scale(signed: bool, middle: int) -> None:
    range_, graph = StaticRange(1.0, signed=signed), rewriting()
    u8, scale, zero_point = quantize_statically(graph, "x", range_)
    assert quantize_statically(graph, "x", range_) == (u8, scale, zero_point)
    other = quantize_statically(graph, "x", StaticRange(2.0, signed=signed))
    made, (levels, coarse) = given(graph, u8, other[0])
    assert kinds(made).count("QuantizeLinear") == 2
    for found, peak in ((levels, 1.0), (coarse, 2.0)):
        step = peak / (127 if signed else 255)
        low, high = (-middle * step, (255 - middle) * step)
        wanted = np.clip(FEED["x"], low, high)
        np.testing.assert_allclose((found.astype(int) - middle) * step, wanted, atol=step * 0.51)


def test_a_weight_s_factor_is_in_its_scales_and_not_in_its_key() -> None:
    plain = quantize_weight(rewriting(), "weight")
    factor = np.array(3, np.float32)
    graph = rewriting(scaled={"weight": Scaled("original", factor)})
    found = quantize_weight(graph, "weight")
    levels, scale = quantize_columns(WEIGHT / np.float32(3))
    assert found == ("weight_s8", "weight_scale", weight_key(levels))
    assert plain[:2] == found[:2]
    _, (scales,) = given(graph, graph.add("Identity", ["weight_scale"], "read"))
    np.testing.assert_allclose(scales, 3 * scale, rtol=1e-6)
    assert quantize_weight(graph, "weight") is found
