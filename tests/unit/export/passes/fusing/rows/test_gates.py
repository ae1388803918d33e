"""Gates of feed-forwards that become one operator with what they let through."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.passes.fusing.rows.gates import fuse_geglu, fuse_swiglu
from tests.unit.export.passes.small_graph import check_fused, small_graph

BATCH, QUERIES, DIM = 2, 3, 4
FEED = {
    "product": np.random.default_rng(0).standard_normal((6, 2 * DIM)).astype(np.float32),
    "other": np.random.default_rng(1).standard_normal((6, DIM)).astype(np.float32),
}
CONSTANTS = {
    "batch": np.array([BATCH]),
    "queries": np.array([QUERIES]),
    "both": np.array([2 * DIM]),
    "flat": np.array([-1, DIM]),
    "folded": np.array([-1, DIM // 2]),
    "parts": np.array([DIM, DIM]),
}
FUSIONS = {"Sigmoid": fuse_swiglu, "Gelu": fuse_geglu}
node = helper.make_node


def gated(
    *,
    gate: str = "first",
    passed: str = "second",
    flat: str = "flat",
    sizes: tuple[str, ...] = (),
    silu: tuple[str, str] = ("gate", "open"),
    end: tuple[str, str] = ("let", "through"),
    axis: int = 2,
) -> list[NodeProto]:
    count = {} if sizes else {"num_outputs": 2}
    return [
        node("Concat", ["batch", "queries", "both"], ["shape"], axis=0),
        node("Reshape", ["product", "shape"], ["x"]),
        node("Split", ["x", *sizes], ["first", "second"], axis=axis, **count),
        node("Reshape", [gate, flat], ["gate"]),
        node("Reshape", [passed, flat], ["through"]),
        node("Sigmoid", ["gate"], ["open"]),
        node("Mul", list(silu), ["let"]),
        node("Mul", list(end), ["y"]),
    ]


@pytest.mark.parametrize(
    "nodes",
    [gated(), gated(silu=("open", "gate")), gated(end=("through", "let"))],
    ids=["as it is traced", "the sigmoid first", "what passes first"],
)
def test_a_gate_and_what_it_lets_through_are_one(nodes: list[NodeProto]) -> None:
    model = small_graph(nodes, FEED, ["y"], CONSTANTS)
    (call,) = check_fused(model, FEED, FUSIONS, ["Swiglu"])
    assert list(call.input) == ["x"]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        (gated(gate="second", passed="first"), ["y"]),
        (gated(axis=0), ["y"]),
        (gated(flat="folded"), ["y"]),
        (gated(sizes=("parts",)), ["y"]),
        (gated(silu=("through", "open"), end=("let", "gate")), ["y"]),
        (gated(silu=("other", "open")), ["y"]),
        (gated(end=("let", "other")), ["y"]),
        (gated(end=("let", "let")), ["y"]),
        (gated(), ["y", "let"]),
        (gated(), ["y", "open"]),
    ],
    ids=[
        "the second half is the gate",
        "halves of the sentences",
        "of another width",
        "parts with sizes",
        "a gate alone",
        "a gate of something else",
        "nothing of it passes",
        "squared",
        "SiLU is read",
        "the gate is read",
    ],
)
def test_other_gates_stay(nodes: list[NodeProto], outputs: list[str]) -> None:
    check_fused(small_graph(nodes, FEED, outputs, CONSTANTS), FEED, FUSIONS, [])


def test_halves_of_another_axis_stay() -> None:
    nodes = gated()
    nodes[0] = node("Concat", ["batch", "queries", "two", "both"], ["shape"], axis=0)
    feed = FEED | {"product": np.concatenate([FEED["product"]] * 2)}
    constants = CONSTANTS | {"two": np.array([2]), "flat": np.array([-1, 2 * DIM])}
    check_fused(small_graph(nodes, feed, ["y"], constants), feed, FUSIONS, [])


@pytest.mark.parametrize(("form", "calls"), [("tanh", ["GegluTanh"]), ("none", [])])
def test_gelu_by_tanh_is_a_gate_too(form: str, calls: list[str]) -> None:
    nodes = gated()
    nodes[5:7] = [node("Gelu", ["gate"], ["let"], approximate=form)]
    check_fused(small_graph(nodes, FEED, ["y"], CONSTANTS), FEED, FUSIONS, calls)
