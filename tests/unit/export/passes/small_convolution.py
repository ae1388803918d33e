"""A convolution along hypotheses as a traced graph has it, and what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.unit.export.passes.small_graph import small_graph

BATCH, QUERIES, SLOTS, HEADS, TAPS, DIM = 2, 3, 6, 2, 3, 4
_GENERATOR = np.random.default_rng(0)


def _floats(*shape: int) -> NDArray[Any]:
    return _GENERATOR.standard_normal(shape).astype(np.float32)


FEED = {
    "x": _floats(BATCH, QUERIES, DIM),
    "cache": _floats(BATCH, SLOTS, DIM),
    "write_index": np.array([2, 0]),
    # Slots of the query's own ancestors, the nearest first; -1 for those before the beginning.
    "ancestors": np.array(
        [[[1, 0, 5], [2, 1, 5], [2, 1, 5]], [[-1, -1, 5], [0, -1, 5], [1, 0, 5]]]
    ),
    "kernel": _floats(BATCH, QUERIES, HEADS, TAPS),
}
CONVOLUTION = helper.make_node(
    "AncestorConvolution", list(FEED), ["sums", "appended"], domain="macaron"
)


def convolution(dim: int = DIM) -> onnx.ModelProto:
    """The graph of the one node, with open sizes but for the width."""
    axes = {
        "x": ("B", "Q", dim),
        "cache": ("B", "C", dim),
        "write_index": ("B",),
        "ancestors": ("B", "Q", 3),
        "kernel": ("B", "Q", HEADS, TAPS),
        "sums": ("B", "Q", dim),
        "appended": ("B", "C", dim),
    }
    return small_graph([CONVOLUTION], FEED, ["sums", "appended"], axes=axes)


def convolved() -> tuple[NDArray[Any], NDArray[Any]]:
    """Both outputs, number by number: of more ancestors than there are taps, the nearest count."""
    appended = FEED["cache"].copy()
    for row, place in enumerate(FEED["write_index"]):
        appended[row, place : place + QUERIES] = FEED["x"][row]
    sums = np.zeros((BATCH, QUERIES, DIM))
    width = DIM // HEADS
    for row, query, feature in np.ndindex(BATCH, QUERIES, DIM):
        kernel = FEED["kernel"][row, query, feature // width]
        sums[row, query, feature] = kernel[0] * FEED["x"][row, query, feature]
        for tap, slot in enumerate(FEED["ancestors"][row, query, : TAPS - 1], 1):
            if slot >= 0:
                sums[row, query, feature] += kernel[tap] * appended[row, slot, feature]
    return sums, appended
