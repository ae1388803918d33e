"""Outputs of students are compared one by one."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.runs.rivals.students import equal_count


def test_equal_outputs_are_counted() -> None:
    assert equal_count(["a", "b", "c"], ["a", "x", "c"]) == 2


def test_a_missing_translation_is_said() -> None:
    with pytest.raises(BenchError, match="3 sentences have 2 translations"):
        equal_count(["a", "b"], ["a", "b", "c"])
