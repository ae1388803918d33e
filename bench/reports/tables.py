"""Renews the tables of a document from their data files: `python -m bench tables`.

A table between `<!-- run: python -m bench ... -->` and `<!-- end -->` is measured again by its
command. One between `<!-- measured: NAME -->` and `<!-- end -->` was written by hand; it is only
rendered from its data file. See `bench.reports.measurement`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import BenchError
from bench.reports.measurement import markdown, parse, read_page_table, rendered, write
from bench.systems.processes.repetitions import Progress
from export.bundles.folder import commit
from training.runs.checkpoint import write_atomically

_BENCH = str(__package__).removesuffix(".reports")
_PREFIX = f"python -m {_BENCH} "
_BLOCK = re.compile(r"<!-- run: (?P<command>[^\n]+) -->\n.*?<!-- end -->", re.DOTALL)
_PAGE_TABLE = re.compile(r"<!-- measured: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)

MEASUREMENTS = Path(__file__).resolve().parents[2] / "docs" / "measurements"
"""The data files of all measured tables; those written by hand are in its folder PAGE_TABLES."""
PAGE_TABLES = "tables"

Run = Callable[[list[str]], str]
"""Runs `python -m bench` with these arguments and returns what it prints."""


def refresh_tables(
    path: Path, only: str, progress: Progress, run: Run | None = None, data: Path = MEASUREMENTS
) -> int:
    """Renew the tables whose command or name contains `only`; returns their number.

    Tables written by hand are rendered from their data files in `data`. Then the commands of the
    others are run, and after each of them its data file and the document are written. Raises
    BenchError for a document without such a table, for a missing data file, and if a command fails.
    """
    if not path.is_file():
        raise BenchError(f"{path} is not a file")
    blocks = [(match["command"], match[0]) for match in _BLOCK.finditer(path.read_text())]
    chosen = [(command, block) for command, block in blocks if only in command]
    names = [match["name"] for match in _PAGE_TABLE.finditer(path.read_text())]
    written = [name for name in names if only in name]
    if not (chosen or written):
        raise BenchError(
            f"{path} has no table whose command or name contains {only!r}, of "
            f"{len(blocks) + len(names)}"
        )
    for name in written:
        _render(path, name, data / PAGE_TABLES / f"{name}.json")
    for number, (command, block) in enumerate(chosen, 1):
        progress(f"table {number} of {len(chosen)}: {command}")
        if not command.startswith(_PREFIX):
            raise BenchError(f"{path}: a table's command must begin with {_PREFIX!r}: {command}")
        output = (run or _run)(shlex.split(command.removeprefix(_PREFIX)))
        today = datetime.now(UTC).date().isoformat()
        try:
            found = parse(command, output, today, commit() or "none")
        except ValueError as error:
            raise BenchError(str(error)) from error
        write(found, data)
        new = f"<!-- run: {command} -->\n{rendered(found)}\n<!-- end -->"
        write_atomically(path, path.read_text().replace(block, new).encode())
    return len(written) + len(chosen)


def _render(path: Path, name: str, source: Path) -> None:
    """Render a table that was written by hand from its data file into the document."""
    if not source.is_file():
        raise BenchError(
            f"{path}: the table {name} has no data file {source.name} in {PAGE_TABLES}"
        )
    new = f"<!-- measured: {name} -->\n{markdown(read_page_table(source).table)}\n<!-- end -->"
    block = re.compile(rf"<!-- measured: {name} -->\n.*?<!-- end -->", re.DOTALL)
    write_atomically(path, block.sub(lambda _: new, path.read_text()).encode())


def _run(arguments: list[str]) -> str:
    words = [sys.executable, "-m", _BENCH, *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{shlex.join(words)} ended with status {done.returncode}")
    return done.stdout
