"""Tables of embeddings that are looked up in int8."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

from export.arithmetic.quantize import ALIKE, quantize_columns
from export.passes.fold_scalars import Scaled
from export.passes.int8.embeddings import lower_embeddings
from export.passes.int8.rewriting import Rewriting
from tests.unit.export.passes.small_graph import (
    constants_of,
    kinds,
    rewritten,
    run,
    small_graph,
)

TABLE = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
FEED = {"ids": np.array([[3, 0, 8], [1, 3, 3]])}
CONSTANTS = {
    "table": TABLE,
    "numbers": np.arange(9),
    "cube": np.ones((9, 2, 2), np.float32),
    "vector": np.arange(9, dtype=np.float32),
}
LOOK_UP = helper.make_node("Gather", ["table", "ids"], ["y"])


def test_rows_are_looked_up_as_integers_and_scaled() -> None:
    model = rewritten(small_graph([LOOK_UP], FEED, ["y"], CONSTANTS), lower_embeddings, int8=True)
    assert kinds(model) == ["Gather", "Cast", "Gather", "Mul"]
    found = constants_of(model)
    assert (found["table_s8"].dtype, found["table_s8"].shape) == (np.int8, (9, 4))
    levels, scale = quantize_columns(TABLE.T)
    (y,) = run(model, FEED)
    np.testing.assert_array_equal(y, (levels * scale).T[FEED["ids"]])
    assert np.abs(y - TABLE[FEED["ids"]]).max() <= scale.max() / 2 + 1e-6


def test_a_factor_that_was_folded_in_changes_scales_alone() -> None:
    constants = CONSTANTS | {"table": TABLE * np.float32(3), "original": TABLE}
    model = small_graph([LOOK_UP], FEED, ["y"], constants)
    scaled = {"table": Scaled("original", np.array(3, np.float32))}
    made = Rewriting(model, scaled=scaled, int8=True, flat_outputs=frozenset(), products=ALIKE).run(
        [lower_embeddings]
    )
    levels, scale = quantize_columns(TABLE.T)
    np.testing.assert_array_equal(constants_of(made)["table_s8"], levels.T)
    np.testing.assert_allclose(constants_of(made)["table_scale"], 3 * scale[:, None], rtol=1e-6)


@pytest.mark.parametrize(
    ("node", "int8"),
    [
        (LOOK_UP, False),
        (helper.make_node("Gather", ["numbers", "ids"], ["y"]), True),
        (helper.make_node("Gather", ["cube", "ids"], ["y"]), True),
        (helper.make_node("Gather", ["vector", "ids"], ["y"]), True),
        (helper.make_node("Cast", ["ids"], ["y"], to=1), True),
    ],
    ids=["fp32", "integers", "three axes", "one axis", "no look-up"],
)
def test_what_is_no_table_of_an_int8_graph_stays(node: NodeProto, int8: bool) -> None:
    model = small_graph([node], FEED, ["y"], CONSTANTS)
    made = rewritten(model, lower_embeddings, int8=int8)
    assert list(made.graph.node) == [node]
