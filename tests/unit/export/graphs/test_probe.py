"""The graph that tells whether a machine computes int8 products exactly."""

from __future__ import annotations

import numpy as np

from export.graphs.probe import probe_model
from tests.unit.export.passes.small_graph import constants_of, run


def test_it_wants_the_exact_result_and_exact_products_give_it() -> None:
    model = probe_model()
    constants = constants_of(model)
    rows = constants["rows"].astype(object) - 128
    wanted = rows @ constants["weight"].astype(object)
    found, expected = run(model, {})
    np.testing.assert_array_equal(expected, wanted.astype(np.float32))
    np.testing.assert_array_equal(found, expected)


def test_its_sums_of_pairs_are_too_large_for_16_bits() -> None:
    constants = constants_of(probe_model())
    rows, weight = (constants[name].astype(np.int64) for name in ("rows", "weight"))
    pairs = [
        rows[:, i, None] * weight[i] + rows[:, i + 1, None] * weight[i + 1]
        for i in range(0, rows.shape[1], 2)
    ]
    assert max(np.abs(pair).max() for pair in pairs) > 2**15 - 1


def test_it_is_the_same_each_time() -> None:
    assert probe_model().SerializeToString() == probe_model().SerializeToString()
