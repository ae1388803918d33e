"""The record of a speed check, stored in a file and compared with the last one of the processor."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_line, versions
from bench.runs.gate.rows import GateResult, GateRow
from training.runs.checkpoint import write_atomically

MOST_LOST = 0.03
"""Largest accepted loss of a row's speed over its rival's, beyond the spread of the repetitions."""


@dataclass(frozen=True)
class GateRecord:
    """The results of one speed check."""

    date: str
    """Start, in ISO 8601, UTC."""
    cpu: str
    processors: int
    """Number of processors that were used."""
    busy: bool
    """Whether other work made the times unreliable; later checks are then not compared with it."""
    command: str
    versions: dict[str, str]
    rows: dict[str, list[float]]
    """Speeds over the rival's in each repetition, by row."""


def record_of(command: str, machine: Machine, gate: GateResult, now: datetime) -> GateRecord:
    """The record of a check that began at `began`."""
    return GateRecord(
        date=now.isoformat(timespec="seconds"),
        cpu=machine.cpu,
        processors=machine.processors,
        busy=machine.busy,
        command=command,
        versions=versions(),
        rows={row.name: row.speeds for row in gate.rows},
    )


def write_record(folder: Path, record: GateRecord) -> Path:
    """Write a record into a folder, atomically; returns the file."""
    processor = re.sub(r"[^a-z0-9]+", "-", record.cpu.lower()).strip("-")
    date = re.sub(r"[^0-9T]", "-", record.date.partition("+")[0])
    path = folder / f"{processor}-{record.processors}-{date}.json"
    write_atomically(path, (json.dumps(asdict(record), indent=1) + "\n").encode())
    return path


def read_last(folder: Path, machine: Machine) -> GateRecord | None:
    """The last record of the machine's processor with as many cores, made on an idle machine; None
    if there is none. Raises BenchError for a file that is not a record."""
    alike = [
        each
        for each in map(_read, sorted(folder.glob("*.json")))
        if (each.cpu, each.processors, each.busy) == (machine.cpu, machine.processors, False)
    ]
    return max(alike, key=lambda each: each.date, default=None)


def _read(path: Path) -> GateRecord:
    try:
        return GateRecord(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise BenchError(
            f"--records: {path} is not a record of bench gate ({error}); move it elsewhere"
        ) from error


def slower(before: Sequence[float], now: Sequence[float]) -> bool:
    """Whether a row has lost more than `MOST_LOST` beyond the spread: its upper quartile is now
    lower by that share than the earlier lower quartile."""
    return _quartiles(now)[1] < (1 - MOST_LOST) * _quartiles(before)[0]


def _quartiles(speeds: Sequence[float]) -> tuple[float, float]:
    if len(speeds) < 2:
        return speeds[0], speeds[0]
    low, _, high = statistics.quantiles(speeds, n=4, method="inclusive")
    return low, high


def losses(gate: GateResult, before: GateRecord | None) -> list[str]:
    """The rows that became slower since a record, one line each."""
    if before is None:
        return []
    return [
        f"{row.name}: {row.median:.2f} times {row.rival}, "
        f"{statistics.median(before.rows[row.name]):.2f} on {before.date}"
        for row in gate.rows
        if row.name in before.rows and slower(before.rows[row.name], row.speeds)
    ]


def gate_markdown(
    command: str, machine: Machine, gate: GateResult, repetitions: int, before: GateRecord | None
) -> str:
    """The table, beside the figures of the last record."""
    subject = f"Speed over a rival on the same weights; median of {repetitions} (min-max)."
    last = "no record of this processor" if before is None else before.date
    lines = [*head_lines(command, machine, subject), ""]
    lines.append(table_line(["", "rival", "ours / its", last, ""]))
    lines.append(table_line(["---", "---", "---:", "---:", "---"]))
    known: Mapping[str, list[float]] = {} if before is None else before.rows
    lines += [table_line(_cells(row, known.get(row.name))) for row in gate.rows]
    lines += [f"\n{name} is left out: {reason}." for name, reason in gate.left_out.items()]
    return "\n".join(lines)


def _cells(row: GateRow, before: Sequence[float] | None) -> list[str]:
    verdict = "" if before is None or not slower(before, row.speeds) else "slower"
    now, then = _span(row.speeds), "" if before is None else _span(before)
    return [row.name, row.rival, now, then, verdict]


def _span(speeds: Sequence[float]) -> str:
    return f"{statistics.median(speeds):.2f} ({min(speeds):.2f}-{max(speeds):.2f})"
