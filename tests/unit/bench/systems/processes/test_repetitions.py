"""Repetitions take turns between systems, and only those that count are kept."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.errors import BenchError
from bench.subjects.scenarios import OUR_INT8, PEER_INT8, Scenario, Setting, System
from bench.systems.processes import repetitions
from bench.systems.processes.repetitions import Measured, best, repeat
from bench.systems.processes.worker import RepetitionTime

SCENARIO, SETTING = Scenario(2, 5), Setting(1, 2)
ROWS = list(range(10))


class FakeWorker:
    """Takes a second a sentence, and notes in whose turn it was called with how many rows."""

    def __init__(self, name: str, calls: list[tuple[str, int]], tokens: int = 7) -> None:
        self.name, self.calls, self.tokens = name, calls, tokens

    def measure(self, scenario: Scenario, max_length: int, rows: Sequence[int]) -> RepetitionTime:
        assert (scenario, max_length) == (SCENARIO, 7)
        self.calls.append((self.name, len(rows)))
        seconds = float(len(rows) + len(self.calls))
        return RepetitionTime(seconds, len(rows), self.tokens * len(rows), 100 + len(self.calls))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions.time, "sleep", lambda _: None)


def run(
    systems: Sequence[System], *, tokens: int = 7, forced: bool = True
) -> tuple[list[Measured], list[tuple[str, int]], list[str]]:
    calls: list[tuple[str, int]] = []
    told: list[str] = []
    workers: Any = {(each, SETTING): FakeWorker(each.engine, calls, tokens) for each in systems}
    found = repeat(SCENARIO, workers, 3, ROWS, 7, told.append, forced=forced)
    return found, calls, told


def test_systems_take_turns_after_a_short_warm_up() -> None:
    found, calls, told = run([OUR_INT8, PEER_INT8])
    ours, peer = OUR_INT8.engine, PEER_INT8.engine
    assert calls == [(ours, 4), (peer, 4), *[(ours, 10), (peer, 10)] * 3]
    assert [each.system for each in found] == [OUR_INT8, PEER_INT8]
    assert [[t.seconds for t in each.timings] for each in found] == [
        [13.0, 15.0, 17.0], [14.0, 16.0, 18.0],
    ]  # fmt: skip
    assert told == [
        "batch 2, beam 5: warming up",
        *(f"batch 2, beam 5: repetition {number}" for number in (1, 2, 3)),
    ]


def test_what_is_compiled_meets_every_row_before_it_counts() -> None:
    _, calls, _ = run([replace(OUR_INT8, kind="compiled")])
    assert [rows for _, rows in calls] == [10, 10, 10, 10]


def test_a_gpu_is_warm_when_its_steps_are_captured() -> None:
    _, calls, _ = run([replace(OUR_INT8, device="cuda")])
    assert [rows for _, rows in calls] == [4] * 5 + [10] * 3


def test_outputs_of_other_lengths_cannot_be_compared() -> None:
    with pytest.raises(BenchError, match=r"generated 24 tokens in place of 28, .*another seed"):
        run([OUR_INT8], tokens=6)
    found, _, _ = run([OUR_INT8], tokens=6, forced=False)
    assert len(found[0].timings) == 3


def measured(setting: Setting, *seconds: float, system: System = OUR_INT8) -> Measured:
    times = [RepetitionTime(each, 4, 28, 100 + n) for n, each in enumerate(seconds)]
    return Measured(system, setting, SCENARIO, times)


def test_a_sentence_s_time_is_the_median_over_repetitions() -> None:
    found = measured(SETTING, 4.0, 1.0, 2.0)
    assert found.ms_per_sentence == [1000.0, 250.0, 500.0]
    assert found.median == statistics.median([1000.0, 250.0, 500.0])
    assert found.tokens_per_second == pytest.approx(28 / 4 / 0.5)
    assert found.peak_memory == 102


def test_the_best_setting_is_of_the_same_system_and_scenario() -> None:
    slow, fast = measured(SETTING, 4.0), measured(Setting(2, 1), 2.0)
    peer = measured(SETTING, 1.0, system=PEER_INT8)
    other = replace(fast, scenario=Scenario(8, 1), timings=[RepetitionTime(0.1, 4, 28, 1)])
    assert best([slow, fast, peer, other], OUR_INT8, SCENARIO) is fast
    assert best([slow, fast, peer, other], PEER_INT8, SCENARIO) is peer
