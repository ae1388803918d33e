"""The tables of a document, made anew by the commands above them: `python -m bench tables`.

A table stands between `<!-- run: python -m bench ... -->` and `<!-- end -->`, and is a rendering of
its data file (`bench.reports.measurement`).
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
from bench.reports.measurement import parse, rendered, write
from bench.systems.processes.repetitions import Progress
from export.bundles.folder import commit
from training.runs.checkpoint import write_atomically

_BENCH = str(__package__).removesuffix(".reports")
_PREFIX = f"python -m {_BENCH} "
_BLOCK = re.compile(r"<!-- run: (?P<command>[^\n]+) -->\n.*?<!-- end -->", re.DOTALL)

MEASUREMENTS = Path(__file__).resolve().parents[2] / "docs" / "measurements"
"""The data files of all tables."""

Run = Callable[[list[str]], str]
"""Arguments of `python -m bench` to what it prints."""


def refresh_tables(
    path: Path, only: str, progress: Progress, run: Run | None = None, data: Path = MEASUREMENTS
) -> int:
    """Make the tables anew whose command contains `only`; returns their number.

    The document is written after each of them, and so is its data file in the folder `data`. Raises
    BenchError for a document without such a table, and where a command fails.
    """
    if not path.is_file():
        raise BenchError(f"{path} is no file")
    blocks = [(match["command"], match[0]) for match in _BLOCK.finditer(path.read_text())]
    chosen = [(command, block) for command, block in blocks if only in command]
    if not chosen:
        raise BenchError(f"{path} has no table whose command contains {only!r}, of {len(blocks)}")
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
    return len(chosen)


def _run(arguments: list[str]) -> str:
    words = [sys.executable, "-m", _BENCH, *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{shlex.join(words)} ended with status {done.returncode}")
    return done.stdout
