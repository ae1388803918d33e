"""Measures a whole process from its start to its end: time, processor time, peak memory.

A small process, `python -m bench.machine.stopwatch INPUT OUTPUT COMMAND...`, starts it: the kernel
counts the memory before `exec` into a process's peak, and that memory is the starter's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.errors import BenchError

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class ProcessUsage:
    """The time and memory that one process used from its start to its end."""

    started: float
    """The start in seconds of `time.monotonic`, a clock that all processes share."""
    seconds: float
    cpu_seconds: float
    """Seconds of processor time, in user and in system mode."""
    peak_rss: int
    """Peak memory of the process in bytes."""


def time_process(
    name: str,
    command: Sequence[str],
    source: Path,
    output: Path,
    env: Mapping[str, str] | None = None,
) -> ProcessUsage:
    """Run a command where this package is found, with stdin and stdout from and to files, and by
    default in this process's environment.

    Raises BenchError, with the last line on stderr, if it fails.
    """
    words = [sys.executable, "-m", __name__, str(source), str(output), *command]
    done = subprocess.run(words, cwd=_ROOT, env=env, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout) if done.returncode == 0 else {"status": done.returncode}
    status = answer.pop("status")
    if status:
        last = done.stderr.strip().rpartition("\n")[2]
        raise BenchError(f"the process of {name} ended with status {status}: {last}")
    return ProcessUsage(**answer)


def _measure(source: str, output: str, command: list[str]) -> dict[str, float]:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    started = time.monotonic()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, used = os.wait4(process, 0)
    usage = ProcessUsage(
        started=started,
        seconds=time.monotonic() - started,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_rss=used.ru_maxrss * _RSS_UNIT,
    )
    return asdict(usage) | {"status": os.waitstatus_to_exitcode(status)}


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2], sys.argv[3:])))
