"""Attention that becomes one operator, with what stands around it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.mixing.attention import (
    fuse_attention,
    fuse_attention_by_head,
    fuse_biased_attention,
)
from tests.unit.export.passes.small_graph import check_fused, small_graph

BATCH, QUERIES, SLOTS, HEADS, DIM = 2, 1, 5, 2, 8
GENERATOR = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


MASK = np.zeros((BATCH, 1, QUERIES, SLOTS), np.float32)
MASK[:, :, :, 3:] = -np.inf
FEED = {
    "query": floats(BATCH, QUERIES, DIM),
    "memory_keys": floats(BATCH, SLOTS, DIM),
    "memory_values": floats(BATCH, SLOTS, DIM),
    "mask": MASK,
    "qkv": floats(BATCH, QUERIES, 3 * DIM),
    "old_keys": floats(BATCH, SLOTS, DIM),
    "old_values": floats(BATCH, SLOTS, DIM),
    "place": np.array([2, 1]),
    "other_place": np.array([1, 0]),
}
BY_HEAD = FEED | {
    "old_keys": floats(BATCH, HEADS, SLOTS, DIM // HEADS),
    "old_values": floats(BATCH, HEADS, SLOTS, DIM // HEADS),
}
CONSTANTS = {
    "scale": np.array(0.02, np.float32),
    "zero": np.array(128, np.uint8),
    "all_heads": np.array([0, 0, 3 * HEADS, DIM // HEADS]),
    "merged": np.array([0, 0, DIM]),
    "by_row": np.array([-1, DIM]),
    "divided": np.array([0, 0, HEADS, DIM // HEADS]),
    "fewer": np.array([0, 0, HEADS // 2, DIM // HEADS * 2]),
    "table": floats(6, HEADS),
}

node = helper.make_node
SIZES = {"q_num_heads": HEADS, "kv_num_heads": HEADS, "scale": 0.5}
ROUNDED = node("QuantizeLinear", ["seen", "scale", "zero"], ["u8"])


def attention(query: str, keys: str, values: str, output: str = "seen") -> NodeProto:
    return node("Attention", [query, keys, values, "mask"], [output], **SIZES)


def written(values_at: str = "place") -> list[NodeProto]:
    """A projection's keys and values behind those in the caches."""
    return [
        node("Split", ["qkv"], ["q", "k", "v"], axis=2, num_outputs=3),
        node("TensorScatter", ["old_keys", "k", "place"], ["keys"], axis=1),
        node("TensorScatter", ["old_values", "v", values_at], ["values"], axis=1),
        attention("q", "keys", "values"),
    ]


def test_attention_on_a_memory_skips_what_the_mask_hides() -> None:
    nodes = [attention("query", "memory_keys", "memory_values")]
    model = small_graph(nodes, FEED, ["seen"], CONSTANTS)
    (call,) = check_fused(model, FEED, {"Attention": fuse_attention}, ["MaskedAttention"])
    assert list(call.input) == ["query", "memory_keys", "memory_values", "mask"]
    assert {a.name: helper.get_attribute_value(a) for a in call.attribute} == {
        "num_heads": HEADS,
        "scale": 0.5,
    }


def test_attention_on_caches_writes_them() -> None:
    model = small_graph(written(), FEED, ["seen", "keys", "values"], CONSTANTS)
    (call,) = check_fused(model, FEED, {"Attention": fuse_attention}, ["TreeAttention"])
    assert list(call.input) == ["qkv", "old_keys", "old_values", "place", "mask"]
    assert list(call.output) == ["seen", "keys", "values"]


@pytest.mark.parametrize(
    ("nodes", "outputs", "name"),
    [
        ([attention("query", "memory_keys", "memory_values"), ROUNDED], ["u8"],
         "MaskedAttentionQuantize"),
        ([*written(), ROUNDED], ["u8", "keys", "values"], "TreeAttentionQuantize"),
        ([*written(), ROUNDED], ["u8", "keys", "values", "seen"], "TreeAttention"),
    ],
    ids=["of a memory", "of caches", "what is seen is read, too"],
)  # fmt: skip
def test_rounding_goes_with_it_where_that_is_all_it_is_for(
    nodes: list[NodeProto], outputs: list[str], name: str
) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    (call,) = check_fused(model, FEED, {"Attention": fuse_attention}, [name])
    assert call.output[0] == ("u8" if "Quantize" in name else "seen")


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        (written("other_place"), ["seen", "keys", "values"]),
        (written(), ["seen", "keys", "values", "k"]),
    ],
    ids=["two places", "the new keys are read"],
)
def test_caches_that_are_written_otherwise_are_written_apart(
    nodes: list[NodeProto], outputs: list[str]
) -> None:
    model = small_graph(nodes, FEED, outputs, CONSTANTS)
    check_fused(model, FEED, {"Attention": fuse_attention}, ["MaskedAttention"])


def test_attention_without_a_mask_stays() -> None:
    nodes = [node("Attention", ["query", "memory_keys", "memory_values"], ["seen"], **SIZES)]
    model = small_graph(nodes, FEED, ["seen"], CONSTANTS)
    check_fused(model, FEED, {"Attention": fuse_attention}, [])


def by_head(shape: str) -> list[NodeProto]:
    return [
        node("Reshape", ["qkv", "all_heads"], ["apart"]),
        node("Transpose", ["apart"], ["heads"], perm=[0, 2, 1, 3]),
        node("Split", ["heads"], ["q", "k", "v"], axis=1, num_outputs=3),
        node("TensorScatter", ["old_keys", "k", "place"], ["keys"], axis=2),
        node("TensorScatter", ["old_values", "v", "place"], ["values"], axis=2),
        node("Attention", ["q", "keys", "values", "mask"], ["seen_heads"], scale=0.5),
        node("Transpose", ["seen_heads"], ["together"], perm=[0, 2, 1, 3]),
        node("Reshape", ["together", shape], ["seen"]),
    ]


FUSIONS = {"Attention": fuse_attention_by_head}


def test_caches_by_head_go_with_the_turning_of_axes() -> None:
    nodes = by_head("merged")
    model = small_graph(nodes, BY_HEAD, ["seen", "keys", "values"], CONSTANTS)
    (call,) = check_fused(model, BY_HEAD, FUSIONS, ["TreeAttentionByHead"])
    assert list(call.input) == ["qkv", "old_keys", "old_values", "place", "mask"]
    model = small_graph([*nodes, ROUNDED], BY_HEAD, ["u8", "keys", "values"], CONSTANTS)
    check_fused(model, BY_HEAD, FUSIONS, ["TreeAttentionByHeadQuantize"])


def test_attention_by_head_of_another_shape_stays() -> None:
    outputs = ["seen", "keys", "values"]
    check_fused(small_graph(by_head("by_row"), BY_HEAD, outputs, CONSTANTS), BY_HEAD, FUSIONS, [])
    more = small_graph(by_head("merged"), BY_HEAD, [*outputs, "together"], CONSTANTS)
    check_fused(more, BY_HEAD, FUSIONS, [])


def test_each_layout_is_left_to_its_own_rule() -> None:
    outputs = ["seen", "keys", "values"]
    check_fused(small_graph(written(), FEED, outputs, CONSTANTS), FEED, FUSIONS, [])
    model = small_graph(by_head("merged"), BY_HEAD, outputs, CONSTANTS)
    check_fused(model, BY_HEAD, {"Attention": fuse_attention}, [])


def biased(
    *,
    mask: tuple[str, str] = ("mask", "bias"),
    apart: str = "divided",
    last: str = "merged",
    axis: int = -1,
) -> list[NodeProto]:
    """What `written` makes, read by attention with a bias from a table, written out."""
    turned = [0, 2, 1, 3]
    return [
        *written()[:-1],
        node("GatherND", ["table", "buckets"], ["looked_up"]),
        node("Transpose", ["looked_up"], ["bias"], perm=[0, 3, 1, 2]),
        node("Add", list(mask), ["added"]),
        node("Reshape", ["q", apart], ["q_heads"]),
        node("Transpose", ["q_heads"], ["q_turned"], perm=turned),
        node("Reshape", ["keys", apart], ["key_heads"]),
        node("Transpose", ["key_heads"], ["keys_turned"], perm=[0, 2, 3, 1]),
        node("Reshape", ["values", apart], ["value_heads"]),
        node("Transpose", ["value_heads"], ["values_turned"], perm=turned),
        node("MatMul", ["q_turned", "keys_turned"], ["products"]),
        node("Add", ["products", "added"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=axis),
        node("MatMul", ["weights", "values_turned"], ["summed"]),
        node("Transpose", ["summed"], ["together"], perm=turned),
        node("Reshape", ["together", last], ["seen"]),
    ]


BIASED = FEED | {"buckets": GENERATOR.integers(0, 6, (BATCH, QUERIES, SLOTS, 1))}
BY_BIAS = {"Softmax": fuse_biased_attention}


def test_a_bias_of_each_head_goes_with_attention() -> None:
    nodes = biased()
    model = small_graph(nodes, BIASED, ["seen", "keys", "values"], CONSTANTS)
    (call,) = check_fused(model, BIASED, BY_BIAS, ["BiasedTreeAttention"])
    assert list(call.input) == ["qkv", "old_keys", "old_values", "place", "mask", "bias"]
    assert list(call.output) == ["seen", "keys", "values"]
    assert not call.attribute
    model = small_graph([*nodes, ROUNDED], BIASED, ["u8", "keys", "values"], CONSTANTS)
    check_fused(model, BIASED, BY_BIAS, ["BiasedTreeAttentionQuantize"])


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        (biased(mask=("bias", "mask")), []),
        (biased(mask=("hidden", "bias")), []),
        (biased(mask=("mask", "hidden")), []),
        (biased(last="by_row"), []),
        (biased(axis=1), []),
        (biased(), ["weights"]),
        (biased(), ["k"]),
    ],
    ids=[
        "the bias first",
        "another mask",
        "another bias",
        "made flat",
        "sums over heads",
        "weights are read",
        "new keys are read",
    ],
)
def test_other_forms_of_it_stay(nodes: list[NodeProto], more: list[str]) -> None:
    place = next(i for i, each in enumerate(nodes) if "added" in each.output)
    hidden = node("Identity", ["mask"], ["hidden"])
    outputs = ["seen", "keys", "values", *more]
    model = small_graph([*nodes[:place], hidden, *nodes[place:]], BIASED, outputs, CONSTANTS)
    check_fused(model, BIASED, BY_BIAS, [])


def test_heads_that_the_table_does_not_have_stay() -> None:
    """One head by the shapes, and two columns of the table: there are two sums for each."""
    nodes = [each for each in biased(apart="fewer") if "seen" not in each.output]
    model = small_graph(nodes, BIASED, ["keys", "values", "together"], CONSTANTS)
    check_fused(model, BIASED, BY_BIAS, [])
    nodes.append(node("Reshape", ["together", "two"], ["seen"]))
    two = CONSTANTS | {"two": np.array([0, 0, 2 * DIM])}
    model = small_graph(nodes, BIASED, ["keys", "values", "seen"], two)
    check_fused(model, BIASED, BY_BIAS, [])
