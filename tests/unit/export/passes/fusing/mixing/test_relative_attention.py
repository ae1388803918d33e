"""Attention with vectors of distances that becomes one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.mixing.relative_attention import fuse_relative_attention
from tests.unit.export.passes.small_graph import check_fused, small_graph

BATCH, QUERIES, SLOTS, HEADS, WIDTH, DISTANCES = 2, 3, 6, 2, 4, 5
DIM = HEADS * WIDTH
GENERATOR = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


MASK = np.zeros((BATCH, 1, QUERIES, SLOTS), np.float32)
MASK[:, :, :, 4:] = -np.inf
FEED = {
    "mask": MASK,
    "qkv": floats(BATCH, QUERIES, 3 * DIM),
    "old_keys": floats(BATCH, SLOTS, DIM),
    "old_values": floats(BATCH, SLOTS, DIM),
    "place": np.array([1, 0]),
    "places": GENERATOR.integers(0, DISTANCES, (BATCH, QUERIES, SLOTS)),
    "other_places": GENERATOR.integers(0, DISTANCES, (BATCH, QUERIES, SLOTS)),
}
CONSTANTS = {
    "scale": np.array(0.02, np.float32),
    "zero": np.array(128, np.uint8),
    "divided": np.array([0, 0, HEADS, WIDTH]),
    "merged": np.array([0, 0, DIM]),
    "by_row": np.array([-1, DIM]),
    "in_one": np.array([1, -1, DIM]),
    "halved": np.array([0, -1, DIM // 2]),
    "half": np.array(0.5, np.float32),
    "each": floats(WIDTH),
    "flat": np.array([-1, WIDTH]),
    "last": np.array([3]),
    "heads": np.array([HEADS]),
    "width": np.array([WIDTH]),
    "key_table": floats(DISTANCES, WIDTH),
    "value_table": floats(DISTANCES, WIDTH),
    "longer_table": floats(DISTANCES + 1, WIDTH),
}
BY_SOFTMAX = {"Softmax": fuse_relative_attention}
HEADS_FIRST = [0, 2, 1, 3]

node = helper.make_node
ROUNDED = node("QuantizeLinear", ["seen", "scale", "zero"], ["u8"])


def relative(
    *,
    flat: bool = False,
    last: str = "merged",
    scale: str = "half",
    mask: tuple[str, str] = ("scores", "mask"),
    axis: int = -1,
    values_at: str = "index",
    values_in: str = "value_table",
) -> list[NodeProto]:
    """Attention on caches as it is exported. With `flat`, values between two reshapes are flat."""
    nodes = [
        node("Unsqueeze", ["places", "last"], ["index"]),
        node("Unsqueeze", ["other_places", "last"], ["other_index"]),
        node("Split", ["qkv"], ["q", "k", "v"], axis=2, num_outputs=3),
        node("TensorScatter", ["old_keys", "k", "place"], ["keys"], axis=1),
        node("TensorScatter", ["old_values", "v", "place"], ["values"], axis=1),
        node("Reshape", ["q", "divided"], ["q_heads"]),
        node("Transpose", ["q_heads"], ["q_turned"], perm=HEADS_FIRST),
        node("Reshape", ["keys", "divided"], ["key_heads"]),
        node("Transpose", ["key_heads"], ["keys_turned"], perm=[0, 2, 3, 1]),
        node("Reshape", ["values", "divided"], ["value_heads"]),
        node("Transpose", ["value_heads"], ["values_turned"], perm=HEADS_FIRST),
        *_elementwise("Mul", ["q_turned"], [scale], "scaled", flat=flat),
        node("MatMul", ["scaled", "keys_turned"], ["products"]),
        node("GatherND", ["key_table", "index"], ["key_vectors"]),
        node("Transpose", ["key_vectors"], ["key_columns"], perm=[0, 1, 3, 2]),
        node("Transpose", ["scaled"], ["by_query"], perm=HEADS_FIRST),
        node("MatMul", ["by_query", "key_columns"], ["by_distance"]),
        node("Transpose", ["by_distance"], ["beside"], perm=HEADS_FIRST),
        node("Add", ["products", "beside"], ["scores"]),
        node("Add", list(mask), ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=axis),
        node("MatMul", ["weights", "values_turned"], ["summed"]),
        node("GatherND", [values_in, values_at], ["value_vectors"]),
        node("Transpose", ["weights"], ["weights_by_query"], perm=HEADS_FIRST),
        node("MatMul", ["weights_by_query", "value_vectors"], ["summed_by_query"]),
        node("Transpose", ["summed_by_query"], ["summed_beside"], perm=HEADS_FIRST),
        *_elementwise("Add", ["summed", "summed_beside"], [], "total", flat=flat),
        node("Transpose", ["total"], ["together"], perm=HEADS_FIRST),
        node("Reshape", ["together", last], ["seen"]),
    ]
    sizes = [
        node("Shape", ["mask"], ["rows"], start=0, end=1),
        node("Shape", ["mask"], ["queries"], start=2, end=3),
        node("Concat", ["rows", "heads", "queries", "width"], ["whole"], axis=0),
    ]
    return [*(sizes if flat else []), *nodes]


def _elementwise(
    kind: str, inputs: list[str], constants: list[str], output: str, *, flat: bool
) -> list[NodeProto]:
    if not flat:
        return [node(kind, [*inputs, *constants], [output])]
    return [
        *(node("Reshape", [name, "flat"], [f"{name}_flat"]) for name in inputs),
        node(kind, [*(f"{name}_flat" for name in inputs), *constants], [f"{output}_flat"]),
        node("Reshape", [f"{output}_flat", "whole"], [output]),
    ]


@pytest.mark.parametrize("flat", [False, True])
def test_vectors_of_distances_go_with_attention(flat: bool) -> None:
    nodes = relative(flat=flat)
    model = small_graph(nodes, FEED, ["seen", "keys", "values"], CONSTANTS)
    (call,) = check_fused(model, FEED, BY_SOFTMAX, ["RelativeTreeAttention"])
    caches, tables = ["old_keys", "old_values"], ["key_table", "value_table"]
    assert list(call.input) == ["qkv", *caches, "place", "mask", "places", *tables, "half"]
    assert list(call.output) == ["seen", "keys", "values"]
    assert not call.attribute
    model = small_graph([*nodes, ROUNDED], FEED, ["u8", "keys", "values"], CONSTANTS)
    check_fused(model, FEED, BY_SOFTMAX, ["RelativeTreeAttentionQuantize"])


def test_layers_share_a_body() -> None:
    """Their places are looked up once, before the first of them."""
    shared, *first = relative()
    second = []
    for each in first:
        copied = NodeProto()
        copied.CopyFrom(each)
        mine = {name for other in first for name in other.output}
        for names in (copied.input, copied.output):
            names[:] = [f"{name}_2" if name in mine else name for name in names]
        second.append(copied)
    outputs = ["seen", "keys", "values", "seen_2", "keys_2", "values_2"]
    model = small_graph([shared, *first, *second], FEED, outputs, CONSTANTS)
    check_fused(model, FEED, BY_SOFTMAX, ["RelativeTreeAttention"] * 2)


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        (relative(mask=("mask", "scores")), []),
        (relative(mask=("scores", "hidden")), []),
        (relative(last="by_row"), []),
        (relative(last="in_one"), []),
        (relative(last="halved"), []),
        (relative(values_in="longer_table"), []),
        (relative(axis=1), []),
        (relative(scale="each"), []),
        (relative(values_at="other_index"), []),
        (relative(), ["weights"]),
        (relative(), ["k"]),
        (relative(), ["keys_turned"]),
    ],
    ids=[
        "the mask first",
        "another mask",
        "made flat",
        "texts in one row",
        "heads in rows",
        "tables of two lengths",
        "sums over heads",
        "a scale for each feature",
        "two kinds of places",
        "weights are read",
        "new keys are read",
        "turned keys are read",
    ],
)
def test_other_forms_of_it_stay(nodes: list[NodeProto], more: list[str]) -> None:
    hidden = node("Identity", ["mask"], ["hidden"])
    outputs = ["seen", "keys", "values", *more]
    model = small_graph([hidden, *nodes], FEED, outputs, CONSTANTS)
    check_fused(model, FEED, BY_SOFTMAX, [])


@pytest.mark.parametrize("one", ["summed", "summed_beside"])
def test_sums_of_which_one_part_is_flat_stay(one: str) -> None:
    """They broadcast, and are no sums of equal rows. Here there is one query."""
    feed = FEED | {
        "mask": MASK[:, :, :1],
        "qkv": floats(BATCH, 1, 3 * DIM),
        "places": FEED["places"][:, :1],
    }
    del feed["other_places"]
    nodes = [each for each in relative() if each.output[0] != "other_index"]
    end = next(i for i, each in enumerate(nodes) if each.output[0] == "total")
    nodes.insert(end, node("Reshape", [one, "flat"], ["rows"]))
    nodes[end + 1].input[list(nodes[end + 1].input).index(one)] = "rows"
    model = small_graph(nodes, feed, ["seen", "keys", "values"], CONSTANTS)
    check_fused(model, feed, BY_SOFTMAX, [])


@pytest.mark.parametrize("kind", ["Split", "TensorScatter"])
def test_caches_that_are_written_otherwise_stay(kind: str) -> None:
    nodes = relative()
    changed = {"Split": ("axis", -1), "TensorScatter": ("mode", "circular")}[kind]
    for each in nodes:
        if each.op_type == kind:
            kept = [a for a in each.attribute if a.name != changed[0]]
            del each.attribute[:]
            each.attribute.extend([*kept, helper.make_attribute(*changed)])
    model = small_graph(nodes, FEED, ["seen", "keys", "values"], CONSTANTS)
    check_fused(model, FEED, BY_SOFTMAX, [])
