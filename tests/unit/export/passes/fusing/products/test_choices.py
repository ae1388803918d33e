"""Tokens that are chosen from logits in one operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from export.passes.fusing.products.choices import (
    fuse_candidates,
    fuse_shortlist_candidates,
    fuse_top_tokens,
)
from tests.unit.export.passes.small_graph import check_fused, small_graph

GENERATOR = np.random.default_rng(0)
BATCH, QUERIES, SIZE = 2, 3, 7
CONSTANTS = {
    "minus_1": np.array([-1]),
    "axis_1": np.array([1]),
    "axis_2": np.array([2]),
    "count": np.array([4]),
    "size": np.array(SIZE),
    "zero": np.array(0),
    "never": np.array(-np.inf, np.float32),
}
LOGITS = GENERATOR.standard_normal((BATCH, QUERIES, SIZE)).astype(np.float32)
LABELS = GENERATOR.integers(0, SIZE, (BATCH, QUERIES))
SCORES = GENERATOR.standard_normal((BATCH, QUERIES)).astype(np.float32)

node = helper.make_node
LABEL_SCORES = [
    node("Unsqueeze", ["label_ids", "axis_2"], ["labels"]),
    node("GatherElements", ["log_probs", "labels"], ["picked"], axis=2),
    node("Squeeze", ["picked", "axis_2"], ["label_scores"]),
]
CHOSEN = ["candidate_scores", "candidate_tokens", "candidate_parents"]


def beam_search(sizes_of: str, scores: str = "scores") -> list[NodeProto]:
    """The best of all continuations, whose number of sentences is read from a value."""
    return [
        node("LogSoftmax", ["logits"], ["log_probs"], axis=-1),
        node("Unsqueeze", [scores, "axis_2"], ["before"]),
        node("Add", ["log_probs", "before"], ["sums"]),
        node("Shape", [sizes_of], ["sentences"], end=1),
        node("Concat", ["sentences", "minus_1"], ["one_row"], axis=0),
        node("Reshape", ["sums", "one_row"], ["rows"]),
        node("TopK", ["rows", "count"], ["candidate_scores", "places"]),
        node("Mod", ["places", "size"], ["tokens"]),
        node("Cast", ["tokens"], ["candidate_tokens"], to=TensorProto.INT32),
        node("Div", ["places", "size"], ["parents"]),
        node("Cast", ["parents"], ["candidate_parents"], to=TensorProto.INT32),
    ]


@pytest.mark.parametrize("sizes_of", ["label_ids", "positions", "token_ids"])
def test_candidates_need_no_other_input_for_their_shape(sizes_of: str) -> None:
    feed = {"logits": LOGITS, "scores": SCORES, "label_ids": LABELS, "positions": LABELS}
    feed["token_ids"] = LABELS
    nodes = [*beam_search(sizes_of), *LABEL_SCORES]
    model = small_graph(nodes, feed, [*CHOSEN, "label_scores"], CONSTANTS)
    (call,) = check_fused(model, feed, {"LogSoftmax": fuse_candidates}, ["Candidates"])
    assert list(call.input) == ["logits", "scores", "label_ids"]
    assert list(call.output) == [*CHOSEN, "label_scores"]


def test_candidates_of_other_inputs_or_for_other_outputs_stay() -> None:
    feed = {"logits": LOGITS, "scores": SCORES, "label_ids": LABELS, "penalties": SCORES}
    unscored = small_graph(beam_search("label_ids"), feed, CHOSEN, CONSTANTS)
    check_fused(unscored, feed, {"LogSoftmax": fuse_candidates}, [])
    nodes = [*beam_search("label_ids", "penalties"), *LABEL_SCORES]
    other = small_graph(nodes, feed, [*CHOSEN, "label_scores"], CONSTANTS)
    check_fused(other, feed, {"LogSoftmax": fuse_candidates}, [])


def shortlisted(columns: str, sizes_of: str = "scores") -> list[NodeProto]:
    """Columns below zero are nobody's and have no chance."""
    return [
        node("Less", [columns, "zero"], ["is_hidden"]),
        node("Unsqueeze", ["is_hidden", "axis_1"], ["hidden"]),
        node("Where", ["hidden", "never", "logits"], ["seen"]),
        node("LogSoftmax", ["seen"], ["log_probs"], axis=-1),
        *beam_search(sizes_of)[1:7],
        node("Mod", ["places", "size"], ["number"]),
        node("GatherElements", [columns, "number"], ["tokens"], axis=1),
        *beam_search(sizes_of)[8:],
    ]


COLUMNS = np.array([[3, 9, 12, 40, -1, -1, -1], [1, 3, 5, 7, 9, 11, 50]])


@pytest.mark.parametrize("sizes_of", ["scores", "columns", "token_ids"])
def test_candidates_of_a_shortlist_read_its_columns(sizes_of: str) -> None:
    feed = {"logits": LOGITS, "columns": COLUMNS, "scores": SCORES, "token_ids": LABELS}
    axes = {"scores": ("B", "K"), "columns": ("B", "L"), "token_ids": ("B", "Q")}
    nodes = shortlisted("columns", sizes_of)
    model = small_graph(nodes, feed, CHOSEN, CONSTANTS, axes)
    fusions = {"LogSoftmax": fuse_shortlist_candidates}
    (call,) = check_fused(model, feed, fusions, ["ShortlistCandidates"])
    assert list(call.input) == ["logits", "columns", "scores"]
    assert list(call.output) == CHOSEN


def test_candidates_of_a_shortlist_take_no_size_that_may_be_another() -> None:
    feed = {"logits": LOGITS, "columns": COLUMNS, "scores": SCORES, "token_ids": LABELS}
    axes = {"scores": ("B", "K"), "columns": ("B", "L"), "token_ids": ("T", "Q")}
    nodes = shortlisted("columns", "token_ids")
    model = small_graph(nodes, feed, CHOSEN, CONSTANTS, axes)
    check_fused(model, feed, {"LogSoftmax": fuse_shortlist_candidates}, [])


def test_hidden_logits_of_no_shortlist_stay() -> None:
    feed = {"logits": LOGITS, "listed": np.tile(np.arange(SIZE) - 1, (BATCH, 1)), "scores": SCORES}
    model = small_graph(shortlisted("listed"), feed, CHOSEN, CONSTANTS)
    check_fused(model, feed, {"LogSoftmax": fuse_shortlist_candidates}, [])


TOP = [
    node("LogSoftmax", ["logits"], ["log_probs"], axis=-1),
    node("Shape", ["top_ranks"], ["most"]),
    node("TopK", ["log_probs", "most"], ["top_scores", "tokens"]),
    node("Cast", ["tokens"], ["top_tokens"], to=TensorProto.INT32),
    *LABEL_SCORES[:2],
    node("Shape", ["output_index"], ["shape"]),
    node("Reshape", ["picked", "shape"], ["label_scores"]),
]
TOP_FEED = {
    "logits": LOGITS,
    "top_ranks": np.arange(4),
    "label_ids": LABELS,
    "output_index": np.zeros_like(LABELS),
}


def test_the_likeliest_tokens_are_one_operator() -> None:
    outputs = ["top_scores", "top_tokens", "label_scores"]
    model = small_graph(TOP, TOP_FEED, outputs, CONSTANTS)
    (call,) = check_fused(model, TOP_FEED, {"LogSoftmax": fuse_top_tokens}, ["TopTokens"])
    assert list(call.input) == ["logits", "label_ids", "top_ranks"]
    assert list(call.output) == outputs


def test_log_probabilities_that_are_wanted_themselves_are_still_there() -> None:
    outputs = ["top_scores", "top_tokens", "label_scores", "log_probs"]
    model = small_graph(TOP, TOP_FEED, outputs, CONSTANTS)
    check_fused(model, TOP_FEED, {"LogSoftmax": fuse_top_tokens}, ["TopTokens"])
    fewer = small_graph(TOP, TOP_FEED, ["top_scores", "top_tokens"], CONSTANTS)
    check_fused(fewer, TOP_FEED, {"LogSoftmax": fuse_top_tokens}, [])
