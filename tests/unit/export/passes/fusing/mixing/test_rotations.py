"""The rotation of queries and keys that becomes one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.mixing.attention import fuse_attention_by_head
from export.passes.fusing.mixing.rotations import fuse_rotations
from tests.unit.export.passes.small_graph import check_fused, small_graph

BATCH, QUERIES, HEADS, HALF = 2, 3, 3, 4
TURNED, KEPT = HEADS * 2 * HALF, 2 * HALF
GENERATOR = np.random.default_rng(0)
FEED = {
    "product": GENERATOR.standard_normal((6, TURNED + KEPT)).astype(np.float32),
    "angles": GENERATOR.standard_normal((BATCH, QUERIES, HALF)).astype(np.float32),
    "others": GENERATOR.standard_normal((BATCH, QUERIES, HALF)).astype(np.float32),
    "narrow": GENERATOR.standard_normal((BATCH, QUERIES, 1, 1)).astype(np.float32),
}
CONSTANTS = {
    "batch": np.array([BATCH]),
    "queries": np.array([QUERIES]),
    "all": np.array([TURNED + KEPT]),
    "sizes": np.array([TURNED, KEPT]),
    "pairs": np.array([0, 0, HEADS, 2, HALF]),
    "flat": np.array([-1, HALF]),
    "apart": np.array([BATCH, QUERIES, HEADS, HALF]),
    "merged": np.array([0, 0, TURNED]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "axis": np.array([-2]),
    "heads": np.array([2]),
}
FUSIONS = {"Concat": fuse_rotations}
node = helper.make_node


def rotated(
    *,
    first: tuple[str, str] = ("zero", "one"),
    kinds: tuple[str, str] = ("Sub", "Add"),
    sine: str = "sin",
    halves: tuple[str, str] = ("turned", "other"),
    rest: str = "rest",
    cos: str = "cos",
    apart: str = "axis",
) -> list[NodeProto]:
    """As a graph has it whose rows are flat between products."""
    return [
        node("Unsqueeze", ["angles", "heads"], ["angle"]),
        node("Unsqueeze", ["others", "heads"], ["other_angle"]),
        node("Cos", ["angle"], ["cos"]),
        node("Sin", ["angle"], ["sin"]),
        node("Sin", ["other_angle"], ["other_sin"]),
        node("Cos", ["narrow"], ["narrow_cos"]),
        node("Concat", ["batch", "queries", "all"], ["shape"], axis=0),
        node("Reshape", ["product", "shape"], ["x"]),
        node("Split", ["x", "sizes"], ["part", "rest"], axis=2),
        node("Reshape", ["part", "pairs"], ["by_pair"]),
        node("Slice", ["by_pair", *first, "axis"], ["first_one"]),
        node("Squeeze", ["first_one", "axis"], ["a"]),
        node("Slice", ["by_pair", "one", "two", "axis"], ["second_one"]),
        node("Squeeze", ["second_one", "axis"], ["b"]),
        *(
            each
            for place, (one, two) in enumerate([("a", "b"), ("b", "a")])
            for each in (
                node("Mul", [one, cos], [f"c{place}"]),
                node("Mul", [two, sine], [f"s{place}"]),
                node("Reshape", [f"c{place}", "flat"], [f"flat_c{place}"]),
                node("Reshape", [f"s{place}", "flat"], [f"flat_s{place}"]),
                node(kinds[place], [f"flat_c{place}", f"flat_s{place}"], [f"flat{place}"]),
                node("Reshape", [f"flat{place}", "apart"], [("turned", "other")[place]]),
            )
        ),
        node("Unsqueeze", [halves[0], apart], ["above"]),
        node("Unsqueeze", [halves[1], apart], ["below"]),
        node("Concat", ["above", "below"], ["stack"], axis=-2),
        node("Reshape", ["stack", "merged"], ["all_turned"]),
        node("Concat", ["all_turned", rest], ["y"], axis=-1),
    ]


def test_pairs_that_are_turned_are_one() -> None:
    model = small_graph(rotated(), FEED, ["y"], CONSTANTS)
    (call,) = check_fused(model, FEED, FUSIONS, ["Rotary"])
    assert list(call.input) == ["x", "cos", "sin", "sizes", "pairs", "apart", "merged"]


@pytest.mark.parametrize(
    "nodes",
    [
        rotated(first=("one", "two")),
        rotated(kinds=("Add", "Add")),
        rotated(kinds=("Sub", "Sub")),
        rotated(sine="cos"),
        rotated(sine="other_sin"),
        rotated(cos="narrow_cos"),
        rotated(apart="heads"),
        rotated(halves=("other", "turned")),
        rotated(halves=("turned", "turned")),
        rotated(rest="part"),
    ],
    ids=[
        "one half twice",
        "only added",
        "only subtracted",
        "a cosine for a sine",
        "the sine of another angle",
        "one angle for all",
        "halves before heads",
        "the halves change places",
        "one of them twice",
        "another rest",
    ],
)
def test_other_sums_stay(nodes: list[NodeProto]) -> None:
    check_fused(small_graph(nodes, FEED, ["y"], CONSTANTS), FEED, FUSIONS, [])


def test_what_may_have_more_axes_stays() -> None:
    nodes = [each for each in rotated() if "x" not in each.output]
    feed = FEED | {"product": FEED["product"].reshape(BATCH, QUERIES, -1)}
    model = small_graph([node("Identity", ["product"], ["x"]), *nodes], feed, ["y"], CONSTANTS)
    check_fused(model, feed, FUSIONS, [])


def test_what_attention_takes_its_parts_from_has_three_axes() -> None:
    """As where queries and keys have norms: then the projection is put together anew."""
    queries, keys = HEADS - 1, 1
    nodes = [
        node("Identity", ["product"], ["x"]),
        *(each for each in rotated() if "x" not in each.output),
        node("Reshape", ["y", "by_head"], ["divided"]),
        node("Transpose", ["divided"], ["heads_first"], perm=[0, 2, 1, 3]),
        node("Split", ["heads_first", "counts"], ["q", "k", "v"], axis=1),
        node("TensorScatter", ["old_keys", "k", "place"], ["keys"], axis=2),
        node("TensorScatter", ["old_values", "v", "place"], ["values"], axis=2),
        node("Attention", ["q", "keys", "values", "mask"], ["seen"], scale=0.5),
        node("Transpose", ["seen"], ["together"], perm=[0, 2, 1, 3]),
        node("Reshape", ["together", "joined"], ["out"]),
    ]
    cache = np.zeros((BATCH, keys, 8, 2 * HALF), np.float32)
    feed = FEED | {
        "product": FEED["product"].reshape(BATCH, QUERIES, -1),
        "old_keys": cache,
        "old_values": cache,
        "place": np.array([1, 4]),
        "mask": np.zeros((BATCH, 1, QUERIES, 8), np.float32),
    }
    constants = CONSTANTS | {
        "by_head": np.array([0, 0, HEADS + keys, 2 * HALF]),
        "counts": np.array([queries, keys, keys]),
        "joined": np.array([0, 0, queries * 2 * HALF]),
    }
    fusions = {"Attention": fuse_attention_by_head, **FUSIONS}
    model = small_graph(nodes, feed, ["out", "keys", "values"], constants)
    check_fused(model, feed, fusions, ["Rotary", "TreeAttentionByHead"])
    model = small_graph(nodes, feed, ["out", "keys", "values", "seen"], constants)
    check_fused(model, feed, fusions, [])


def test_what_others_read_stays_too() -> None:
    model = small_graph(rotated(), FEED, ["y", "turned"], CONSTANTS)
    (call,) = check_fused(model, FEED, FUSIONS, ["Rotary"])
    assert list(call.output) == ["y"]
