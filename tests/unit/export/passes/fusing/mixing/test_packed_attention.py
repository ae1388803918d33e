"""Attention on packed texts in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.mixing.packed_attention import fuse_packed_attention
from tests.unit.export.passes.small_graph import check_fused, small_graph

TEXTS, LENGTH, TOKENS, DIM = 2, 3, 5, 8
SLOTS = np.array([[0, 1, 2], [3, 4, 4]])
MASK = np.zeros((TEXTS, 1, LENGTH, LENGTH), np.float32)
MASK[1, ..., 2] = -np.inf
FEED = {
    "qkv": np.random.default_rng(0).standard_normal((1, TOKENS, 3 * DIM)).astype(np.float32),
    "query_places": 3 * SLOTS,
    "key_places": 3 * SLOTS + 1,
    "value_places": 3 * SLOTS + 2,
    "rows": np.array([0, 1, 2, 3, 4]),
    "mask": MASK,
    "given": np.array(0.5, np.float32),
}
CONSTANTS = {
    "parts": np.array([-1, DIM]),
    "in_parts": np.array([1, -1, 3 * DIM]),
    "factor": np.array(0.5, np.float32),
    "axis": np.array([1]),
    "axis_0": np.array([0]),
    "least": np.array(1e-8, np.float32),
    "level": np.array(1 / 127, np.float32),
    "zeros": np.full(TOKENS, 128, np.uint8),
    "scale": np.array(0.02, np.float32),
    "zero": np.array(128, np.uint8),
}

node = helper.make_node


def packed(*, factor: str = "factor", values_of: str = "apart") -> list[NodeProto]:
    return [
        node("Reshape", ["qkv", "parts"], ["apart"]),
        node("Neg", ["apart"], ["others"]),
        node("Gather", ["apart", "query_places"], ["q"]),
        node("Gather", ["apart", "key_places"], ["k"]),
        node("Gather", [values_of, "value_places"], ["v"]),
        node("Mul", ["q", factor], ["query"]),
        node("Attention", ["query", "k", "v", "mask"], ["seen"], q_num_heads=2, kv_num_heads=2),
        node("Reshape", ["seen", "parts"], ["flat"]),
        node("Gather", ["flat", "rows"], ["tokens"]),
    ]


BY_CONSTANTS = [node("QuantizeLinear", ["tokens", "scale", "zero"], ["u8"])]
BY_ROWS = [
    node("Unsqueeze", ["tokens", "axis_0"], ["shaped"]),
    node("Reshape", ["tokens", "parts"], ["laid_flat"]),
    node("Abs", ["laid_flat"], ["size"]),
    node("ReduceMax", ["size", "axis"], ["peak"], keepdims=0),
    node("Max", ["peak", "least"], ["clamped"]),
    node("Mul", ["clamped", "level"], ["own_scale"]),
    node("QuantizeLinear", ["laid_flat", "own_scale", "zeros"], ["u8"], axis=0),
    node("Unsqueeze", ["own_scale", "axis"], ["scales"]),
]
FUSIONS = {"Attention": fuse_packed_attention}


@pytest.mark.parametrize(
    ("after", "outputs", "name"),
    [
        ([], ["tokens"], "PackedAttention"),
        (BY_CONSTANTS, ["u8"], "PackedAttentionQuantize"),
        (BY_ROWS[1:], ["u8", "scales"], "PackedAttentionQuantizeRows"),
        (BY_ROWS, ["u8", "scales", "shaped"], "PackedAttention"),
        (BY_ROWS[1:], ["u8", "scales", "laid_flat"], "PackedAttentionQuantizeRows"),
    ],
    ids=["alone", "rounded", "rounded by rows", "tokens are read", "flat tokens are read"],
)
def test_texts_are_put_apart_and_together_within_it(
    after: list[NodeProto], outputs: list[str], name: str
) -> None:
    nodes = [each for each in packed() if each.op_type != "Neg"]
    model = small_graph([*nodes, *after], FEED, outputs, CONSTANTS)
    (call,) = check_fused(model, FEED, FUSIONS, [name])
    places = ["query_places", "key_places", "value_places"]
    assert list(call.input)[:7] == ["qkv", *places, "factor", "mask", "rows"]


def test_reshapes_that_change_nothing_are_no_part_of_it() -> None:
    nodes = [
        node("Reshape", ["qkv", "in_parts"], ["same"]),
        node("Reshape", ["same", "parts"], ["apart"]),
        *[each for each in packed()[1:] if each.op_type != "Neg"],
    ]
    model = small_graph(nodes, FEED, ["tokens"], CONSTANTS)
    (call,) = check_fused(model, FEED, FUSIONS, ["PackedAttention"])
    assert call.input[0] == "qkv"


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        (packed(factor="given"), ["tokens"]),
        (packed(values_of="others"), ["tokens"]),
        (packed(), ["tokens", "seen"]),
        (packed(), ["tokens", "flat"]),
        (packed()[:-1], ["flat"]),
    ],
    ids=["a factor of a request", "other values", "seen is read", "flat is read", "not packed"],
)
def test_another_form_stays(nodes: list[NodeProto], outputs: list[str]) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    check_fused(model, FEED, FUSIONS, [])
