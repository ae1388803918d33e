"""Tests are found and begun as tests/conftest.py supposes: none is left out, and none begins late
for a name that has changed."""

from __future__ import annotations

from tests.conftest import LONGEST, TESTS


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def test_a_file_with_slow_tests_says_so_itself() -> None:
    """Else it would not be read for the slow tests."""
    others = {path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")}
    marking = {path for path in others if "mark.slow" in path.read_text(encoding="utf-8")}
    assert marking == {TESTS / "conftest.py"}
