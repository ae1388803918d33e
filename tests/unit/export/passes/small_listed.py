"""Logits of a list of pieces a sentence, as a traced graph has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.unit.export.passes.small_graph import small_graph

PIECES = 11


def listed(dim: int, columns: str = "columns") -> onnx.ModelProto:
    """The graph of the one node, with open sizes; its table is `listed_table`."""
    node = helper.make_node("ListedLogits", ["x", "table", columns], ["logits"], domain="macaron")
    feed = listed_feed(dim)
    feed[columns] = feed.pop("columns")
    axes = {"x": ("B", "Q", dim), columns: ("B", "L"), "logits": ("B", "Q", "L")}
    return small_graph([node], feed, ["logits"], {"table": listed_table(dim)}, axes)


def listed_table(dim: int) -> NDArray[Any]:
    """The rows of all pieces."""
    return np.random.default_rng(dim).standard_normal((PIECES, dim)).astype(np.float32)


def listed_feed(dim: int) -> dict[str, NDArray[Any]]:
    """Two sentences of three queries, and four pieces that each may become."""
    return {
        "x": np.random.default_rng(1).standard_normal((2, 3, dim)).astype(np.float32),
        "columns": np.array([[0, 3, 7, 10], [2, 2, 5, 1]]),
    }
