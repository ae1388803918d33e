"""Tests are found and begun as tests/conftest.py supposes: none is left out, and none begins late
for a name that has changed."""

from __future__ import annotations

import ast

from tests.conftest import LONGEST, TESTS


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def test_a_file_with_slow_tests_says_so_itself() -> None:
    """Else it would not be read for the slow tests."""
    others = {path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")}
    marking = {path for path in others if "mark.slow" in path.read_text(encoding="utf-8")}
    assert marking == {TESTS / "conftest.py"}


def test_requests_to_servers_say_how_long_they_wait() -> None:
    """Without it httpx waits five seconds, which a first answer takes on a machine that is busy
    with other tests."""
    calls = ("get", "put", "post", "delete", "request", "stream", "Client", "AsyncClient")
    silent = [
        f"{path.relative_to(TESTS)}:{call.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in {f"httpx.{name}" for name in calls}
        and "timeout" not in {keyword.arg for keyword in call.keywords}
    ]
    assert silent == []
