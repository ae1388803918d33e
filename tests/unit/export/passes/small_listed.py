"""Logits of a list of pieces a sentence, as a traced graph has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.unit.export.passes.small_graph import small_graph

PIECES = 11


def listed(dim: int, columns: str = "columns", *, biased: bool = False) -> onnx.ModelProto:
    """The graph of the one node, with open sizes; its table is `listed_table`, its bias
    `listed_bias`."""
    names = ["x", "table", columns, *(["bias"] if biased else [])]
    node = helper.make_node("ListedLogits", names, ["logits"], domain="macaron")
    feed = listed_feed(dim)
    feed[columns] = feed.pop("columns")
    axes = {"x": ("B", "Q", dim), columns: ("B", "L"), "logits": ("B", "Q", "L")}
    constants = {"table": listed_table(dim), **({"bias": listed_bias()} if biased else {})}
    return small_graph([node], feed, ["logits"], constants, axes)


def listed_table(dim: int) -> NDArray[Any]:
    """The rows of all pieces."""
    return np.random.default_rng(dim).standard_normal((PIECES, dim)).astype(np.float32)


def listed_bias() -> NDArray[Any]:
    """A number for each piece."""
    return np.random.default_rng(2).standard_normal(PIECES).astype(np.float32)


def listed_feed(dim: int) -> dict[str, NDArray[Any]]:
    """Two sentences of three queries, and four pieces that each may become."""
    return {
        "x": np.random.default_rng(1).standard_normal((2, 3, dim)).astype(np.float32),
        "columns": np.array([[0, 3, 7, 10], [2, 2, 5, 1]]),
    }
