"""Repetitions of the same work, in turns between this engine and its rivals, and the table of their
times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.errors import BenchError
from bench.reports.report import table_head, table_line
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import ENGINE, RivalAnswer, RivalProcess

SETTLE_SECONDS = 0.25
"""Threads of the system before spin for up to 200 ms after a call (OpenMP's default)."""


@dataclass(frozen=True)
class RivalWork:
    """The work that is timed: a method of the rivals and its arguments."""

    name: str
    """Name of the work in the table."""
    do: str
    arguments: Mapping[str, Any]
    amount: int
    """Amount that the speed counts: tokens, texts or sentences."""


@dataclass
class RivalTurns:
    """Repetitions of one work by one system."""

    work: RivalWork
    system: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor time of all threads of the process."""
    result: Any = None
    """The result of the last repetition."""

    @property
    def speeds(self) -> list[float]:
        """The amount of the work in a second, in each repetition."""
        return [self.work.amount / seconds for seconds in self.seconds]


def take_turns(
    processes: Mapping[str, RivalProcess],
    works: Sequence[RivalWork],
    repetitions: int,
    progress: Progress,
    left_out: dict[str, str],
) -> list[RivalTurns]:
    """Time each work by each system, system after system within each repetition, after a warm-up.

    A system that fails at the warm-up is left out of this work, with its reason. Raises BenchError
    if one fails later, and if this engine fails.
    """
    found: list[RivalTurns] = []
    for work in works:
        turns = {name: RivalTurns(work, name) for name in processes}
        for repetition in range(repetitions + 1):
            progress(
                f"{work.name}: " + (f"repetition {repetition}" if repetition else "warming up")
            )
            for name in list(turns):
                time.sleep(SETTLE_SECONDS)
                try:
                    answer = processes[name].ask(work.do, **work.arguments)
                except BenchError as error:
                    if repetition or processes[name].rival.product == ENGINE:
                        raise
                    left_out[f"{name}, {work.name}"] = str(error).removeprefix(f"{name}: ")
                    del turns[name]
                    continue
                if repetition:
                    _note(turns[name], answer)
        found += turns.values()
    return found


def _note(turns: RivalTurns, answer: RivalAnswer) -> None:
    turns.seconds.append(answer.seconds)
    turns.cpu_seconds.append(answer.cpu_seconds)
    turns.result = answer.result


def ratios(ours: Sequence[float], its: Sequence[float]) -> str:
    """The ratios of another system's seconds to ours within each repetition, as text: their median
    and range."""
    found = [theirs / own for own, theirs in zip(ours, its, strict=True)]
    return f"{statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})"


def turns_lines(found: Sequence[RivalTurns], ours: str, unit: str) -> Iterator[str]:
    """The rows of all works as Markdown: the speed of each system, and its wall-clock and processor
    time relative to those of `ours`."""
    columns = [
        "work",
        "system",
        f"{unit}/s (min-max)",
        "its time / ours",
        "its processor time / ours",
    ]
    yield from table_head(columns, texts=2)
    own = {turns.work.name: turns for turns in found if turns.system == ours}
    for turns in found:
        base, speeds = own[turns.work.name], turns.speeds
        span = f"{statistics.median(speeds):,.1f} ({min(speeds):,.1f}-{max(speeds):,.1f})"
        cells = [turns.work.name, turns.system, span]
        if turns is base:
            cells += ["1", "1"]
        else:
            cells += [
                ratios(base.seconds, turns.seconds),
                ratios(base.cpu_seconds, turns.cpu_seconds),
            ]
        yield table_line(cells)


def rivals_markdown(
    head: Iterable[str],
    found: Sequence[RivalTurns],
    unit: str,
    rest: Iterable[str],
    left_out: Mapping[str, str],
) -> str:
    """A head, the table of all works, a second table, and the systems that were left out."""
    lines = [*head, "", *turns_lines(found, ENGINE, unit), "", *rest]
    return "\n".join([*lines, *left_out_lines(left_out)])


def left_out_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    """A line for each system that could not be measured, after an empty one."""
    if left_out:
        yield ""
    for name, reason in left_out.items():
        yield f"{name} is left out: {reason}."


def versions_line(processes: Mapping[str, RivalProcess]) -> str:
    """The versions of the rivals."""
    found = {p.version: None for p in processes.values() if p.rival.product != ENGINE}
    return f"Rivals: {', '.join(found)}." if found else "No rival could be loaded."
