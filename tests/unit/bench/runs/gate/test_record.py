"""When a row counts as slower, and which record it is compared with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.reports.report import Machine
from bench.runs.gate.record import (
    GateRecord,
    gate_markdown,
    losses,
    read_last,
    record_of,
    slower,
    write_record,
)
from bench.runs.gate.rows import GateResult, GateRow

MACHINE = Machine("Some CPU @ 2.0 GHz with AMX", 2, 2, 8.0, others=0.0)
NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
GATE = GateResult(
    [GateRow("demo, batch 1", "CTranslate2, int8", [1.9, 2.0, 2.1])], {"other": "why"}
)


def record(machine: Machine = MACHINE, hour: int = 12) -> GateRecord:
    return record_of("python -m bench gate", machine, GATE, NOW.replace(hour=hour))


@pytest.mark.parametrize(
    ("before", "now", "is_slower"),
    [
        ([2.0, 2.0, 2.0], [1.9, 1.9, 1.9], True),
        ([2.0, 2.0, 2.0], [1.95, 1.95, 1.95], False),
        ([1.8, 2.0, 2.2], [1.8, 1.85, 1.9], False),
        ([1.95, 2.0, 2.05], [1.7, 1.75, 1.8], True),
        ([2.0], [1.0], True),
        ([2.0, 2.0], [3.0, 3.0], False),
    ],
)
def test_a_row_is_slower_beyond_three_percent_and_the_spread(
    before: list[float], now: list[float], is_slower: bool
) -> None:
    assert slower(before, now) is is_slower


def test_one_repetition_far_off_makes_no_row_slower() -> None:
    assert not slower([2.0, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 0.1])


def test_the_last_record_is_that_of_the_same_processor_while_nothing_else_ran(
    tmp_path: Path,
) -> None:
    assert read_last(tmp_path, MACHINE) is None
    first, second = record(), record(hour=14)
    for each in (second, first):
        write_record(tmp_path, each)
    write_record(tmp_path, record(replace(MACHINE, cpu="Another"), hour=15))
    write_record(tmp_path, record(replace(MACHINE, processors=1), hour=16))
    write_record(tmp_path, record(replace(MACHINE, others=0.5), hour=17))
    assert len(list(tmp_path.iterdir())) == 5
    assert read_last(tmp_path, MACHINE) == second


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"date": 1, "what": 2}'])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(BenchError, match=r"--records: .*x\.json is not a record of bench gate"):
        read_last(tmp_path, MACHINE)


def test_what_became_slower_is_named_in_the_table_and_as_an_error() -> None:
    before = replace(record(), rows={"demo, batch 1": [3.0, 3.0, 3.0], "gone": [1.0]})
    assert losses(GATE, None) == []
    assert losses(GATE, record()) == []
    (line,) = losses(GATE, before)
    assert line.startswith("demo, batch 1: 2.00 times CTranslate2, int8, 3.00 on 2026-01-31T12:30")
    table = gate_markdown("python -m bench gate", MACHINE, GATE, 3, before)
    assert "2.00 (1.90-2.10) | 3.00 (3.00-3.00) | slower |" in table
    assert "other is left out: why." in table
    assert "no record of this processor" in gate_markdown("", MACHINE, GATE, 3, None)
