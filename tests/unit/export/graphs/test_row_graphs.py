"""The graphs by which a GPU lays caches out anew."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from export.graphs.row_graphs import row_graph
from serving.runtime.gpu.cuda_memory import move_files

ROWS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
OTHERS = 100 + np.arange(16, dtype=np.int32).reshape(2, 2, 4)


def test_rows_are_gathered_by_an_index() -> None:
    index = np.array([2, 0, 0, 1])
    (found,) = ReferenceEvaluator(row_graph(two=False)).run(None, {"rows": ROWS, "index": index})
    np.testing.assert_array_equal(found, ROWS[:, index])


def test_rows_of_a_second_array_count_on() -> None:
    index = np.array([4, 0, 3])
    feed = {"rows": ROWS, "others": OTHERS, "index": index}
    (found,) = ReferenceEvaluator(row_graph(two=True)).run(None, feed)
    np.testing.assert_array_equal(found, np.concatenate([ROWS, OTHERS], 1)[:, index])


@pytest.mark.parametrize("two", [False, True])
def test_the_package_has_them_as_they_are_made(two: bool) -> None:
    model = row_graph(two=two)
    onnx.checker.check_model(model, full_check=True)
    assert onnx.load(str(move_files()[two])) == model
