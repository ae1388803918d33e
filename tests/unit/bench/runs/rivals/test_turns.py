"""Work is done in turns; what fails before it counts is left out with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from bench.errors import BenchError
from bench.runs.rivals import turns
from bench.runs.rivals.turns import (
    RivalTurns,
    RivalWork,
    left_out_lines,
    ratios,
    take_turns,
    turns_lines,
    versions_line,
)
from bench.systems.processes.rivals import ENGINE, Rival, RivalAnswer

WORK = RivalWork("all", "read", {"texts": ["a", "b"]}, 2)


class FakeProcess:
    """Takes so many seconds a call, and notes in whose turn it was called."""

    def __init__(self, name: str, seconds: float, calls: list[str], fails_at: int = 0) -> None:
        self.rival = Rival(name, ENGINE if name == ENGINE else name, "", "")
        self.version = f"{name} 1.0"
        self._seconds, self._calls, self._fails_at = seconds, calls, fails_at
        self._count = 0

    def ask(self, do: str, **arguments: Any) -> RivalAnswer:
        assert (do, arguments) == ("read", {"texts": ["a", "b"]})
        self._calls.append(self.rival.name)
        self._count += 1
        if self._count == self._fails_at:
            raise BenchError(f"{self.rival.name}: it cannot")
        return RivalAnswer(None, self._seconds * self._count, self._seconds)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns.time, "sleep", lambda _: None)


def run(
    fails_at: int = 0, fails: str = "slow"
) -> tuple[list[RivalTurns], list[str], dict[str, str]]:
    calls: list[str] = []
    left_out: dict[str, str] = {}
    processes: Any = {
        name: FakeProcess(name, seconds, calls, fails_at if name == fails else 0)
        for name, seconds in ((ENGINE, 1.0), ("slow", 3.0))
    }
    return take_turns(processes, [WORK], 2, lambda _: None, left_out), calls, left_out


def test_systems_take_turns_and_the_warm_up_does_not_count() -> None:
    found, calls, left_out = run()
    assert calls == [ENGINE, "slow"] * 3
    assert [each.seconds for each in found] == [[2.0, 3.0], [6.0, 9.0]]
    assert [each.cpu_seconds for each in found] == [[1.0, 1.0], [3.0, 3.0]]
    assert found[0].speeds == [1.0, pytest.approx(2 / 3)]
    assert left_out == {}


def test_what_fails_at_the_warm_up_is_left_out_of_that_work() -> None:
    found, calls, left_out = run(fails_at=1)
    assert [each.system for each in found] == [ENGINE]
    assert calls == [ENGINE, "slow", ENGINE, ENGINE]
    assert left_out == {"slow, all": "it cannot"}
    assert list(left_out_lines(left_out)) == ["", "slow, all is left out: it cannot."]


@pytest.mark.parametrize(("fails_at", "fails"), [(2, "slow"), (1, ENGINE)])
def test_what_fails_later_and_the_engine_end_the_run(fails_at: int, fails: str) -> None:
    with pytest.raises(BenchError, match=f"^{fails}: it cannot$"):
        run(fails_at, fails)


def test_ratios_are_within_a_repetition() -> None:
    assert ratios([1.0, 2.0, 4.0], [2.0, 2.0, 16.0]) == "2.00 (1.00-4.00)"


def test_the_table_has_the_engine_as_one_and_says_by_what_a_rival_is_slower() -> None:
    found, _, _ = run()
    assert list(turns_lines(found, ENGINE, "texts"))[2:] == [
        f"| all | {ENGINE} | 0.8 (0.7-1.0) | 1 | 1 |",
        "| all | slow | 0.3 (0.2-0.3) | 3.00 (3.00-3.00) | 3.00 (3.00-3.00) |",
    ]


def test_versions_are_those_of_the_rivals() -> None:
    processes: Any = {name: FakeProcess(name, 1.0, []) for name in (ENGINE, "slow", "other")}
    assert versions_line(processes) == "Rivals: slow 1.0, other 1.0."
    assert versions_line({ENGINE: processes[ENGINE]}) == "No rival could be loaded."
