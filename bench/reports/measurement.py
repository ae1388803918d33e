"""Measurements as data files, and their rendering as Markdown.

`docs/measurements/` has a file for each printed output of a bench command, with machine, date and
versions; a page shows it between `<!-- run: COMMAND -->` and `<!-- end -->`.
`docs/measurements/tables/` has a file for each table that was written by hand; a page shows it
between `<!-- measured: NAME -->` and `<!-- end -->`. A test compares pages and data files.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_MACHINE = re.compile(r".*\d+ cores \(\d+ used\).*|.*driver .*")
_VERSIONS = re.compile(r"python [\w.+]+(, \w+ .+)*\.")
_WIDTH = 120
"""Columns of a line of prose in a document."""
_DATED = "Measured on {date}, at commit {commit}."


@dataclass(frozen=True)
class MeasuredTable:
    """One table of a measurement."""

    columns: tuple[str, ...]
    rule: str
    """The line below the head, which sets the alignment of the columns."""
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Measurement:
    """The results of one command, with what is needed to repeat it."""

    command: str
    """The command in a form that can be typed again."""
    date: str
    """ISO 8601."""
    commit: str
    """The commit of the repository."""
    printed_command: str
    """The command with all options that affect the result."""
    about: str
    """The subject of the measurement, in a sentence."""
    machine: tuple[str, ...]
    """Processor, cores, memory and other work; then the GPU, if there is one."""
    versions: str
    parts: tuple[MeasuredTable | str, ...]
    """Tables, and the texts between them."""

    @property
    def file(self) -> str:
        """The name of its data file: the command's words."""
        words = re.sub(r"[^a-z0-9]+", "-", self.command.partition(" -m ")[2].lower()).strip("-")
        return f"{words}.json"


@dataclass(frozen=True)
class PageTable:
    """A measured table that was written by hand, with the known facts about the measurement.

    A field is None, or empty, if neither the page nor the history states it. If the day was not
    written down, day and commit are those on which the figures came into the repository.
    """

    name: str
    """Name of its data file, without the suffix."""
    about: str
    """The subject of the measurement, in a sentence."""
    command: str | None
    """The command that measured it; several are joined by `; `."""
    date: str | None
    """The date in ISO 8601, as far as it is known: `2026-11-28` or `2026-11`."""
    commit: str | None
    """Commit of the repository."""
    machine: tuple[str, ...]
    """Processor, cores and other work; then the GPU, if there is one."""
    versions: str | None
    table: MeasuredTable


def parse(command: str, output: str, date: str, commit: str) -> Measurement:
    """Parse the printed output of a command into a measurement; raises ValueError for another
    form."""
    lines = output.strip().splitlines()
    printed, blank, about, *rest = lines
    machine = []
    while rest and _MACHINE.fullmatch(rest[0]):
        machine.append(rest.pop(0))
    if blank or not machine or not rest or not _VERSIONS.fullmatch(rest[0]):
        raise ValueError(f"{command}: machine and versions must stand above the table")
    versions = rest.pop(0)
    if rest and rest[0] == _DATED.format(date=date, commit=commit):
        rest.pop(0)
    parts: list[MeasuredTable | str] = []
    for is_table, text in _runs(rest):
        parts.append(_table(text) if is_table else "\n".join(text).strip("\n"))
    return Measurement(
        command,
        date,
        commit,
        printed.strip("`"),
        about,
        tuple(machine),
        versions,
        tuple(part for part in parts if part),
    )


def rendered(found: Measurement) -> str:
    """The measurement as Markdown."""
    dated = _DATED.format(date=found.date, commit=found.commit)
    lines = (found.about, *found.machine, found.versions, dated)
    head = [f"`{found.printed_command}`", "", *map(_wrapped, lines)]
    texts = [_wrapped(part) if isinstance(part, str) else markdown(part) for part in found.parts]
    return "\n\n".join(["\n".join(head), *texts])


def _wrapped(text: str) -> str:
    """Prose in lines of at most `_WIDTH` columns. Two spaces at the end of a line break it there,
    and are kept."""
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) > _WIDTH:
            end = "  " if line.endswith("  ") else ""
            *before, last = textwrap.wrap(
                line, _WIDTH - 2, break_long_words=False, break_on_hyphens=False
            )
            lines += [*before, last + end]
        else:
            lines.append(line)
    return "\n".join(lines)


def write(found: Measurement, folder: Path) -> None:
    """Write the data file."""
    tree = {**asdict(found), "parts": [_tree(part) for part in found.parts]}
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    (folder / found.file).write_text(f"{text}\n", encoding="utf-8")


def read(path: Path) -> Measurement:
    """The measurement in a data file."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    parts = tuple(part if isinstance(part, str) else _of_tree(part) for part in tree["parts"])
    return Measurement(**{**tree, "machine": tuple(tree["machine"]), "parts": parts})


def read_page_table(path: Path) -> PageTable:
    """The table in a data file."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    machine, table = tuple(tree["machine"]), _of_tree(tree["table"])
    return PageTable(**{**tree, "machine": machine, "table": table})


def markdown(table: MeasuredTable) -> str:
    """A table as Markdown."""
    rows = ["| " + " | ".join(cells) + " |" for cells in (table.columns, *table.rows)]
    return "\n".join([rows[0], table.rule, *rows[1:]])


def _runs(lines: list[str]) -> list[tuple[bool, list[str]]]:
    """Runs of successive lines that are, or are not, part of a table, each with whether it is a
    table."""
    found: list[tuple[bool, list[str]]] = []
    for line in lines:
        is_table = line.startswith("|")
        if not found or found[-1][0] != is_table:
            found.append((is_table, []))
        found[-1][1].append(line)
    return found


def _table(lines: list[str]) -> MeasuredTable:
    head, rule, *rows = lines
    return MeasuredTable(_cells(head), rule, tuple(map(_cells, rows)))


def _cells(line: str) -> tuple[str, ...]:
    return tuple(
        cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
    )


def _tree(part: MeasuredTable | str) -> Any:
    return part if isinstance(part, str) else asdict(part)


def _of_tree(tree: dict[str, Any]) -> MeasuredTable:
    return MeasuredTable(tuple(tree["columns"]), tree["rule"], tuple(map(tuple, tree["rows"])))
