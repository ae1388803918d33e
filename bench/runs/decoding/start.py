"""The time from the start of a server to its first answer, and the processor time it takes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.errors import BenchError
from bench.systems.processes.http_server import end_group, free_port
from serving.bundle.folder import read_manifest

_MOST_S = 120.0
_BETWEEN_S = 0.01
"""Seconds between two requests while the server starts."""


@dataclass(frozen=True)
class Start:
    """The time of one start of a server."""

    wall_s: float
    """Seconds from the command to the first answer with status 200."""
    cpu_s: float
    """Processor time of all processes of the server until then."""


def measure_starts(
    bundle: Path,
    checkouts: Sequence[Path],
    repetitions: int,
    command: str,
    tell: Callable[[str], None],
) -> dict[Path, list[Start]]:
    """Start servers with one bundle from each checkout of the repository, in turns. The first start
    of each is left out, because it may compile. Raises BenchError if a server does not answer."""
    path, body = _request(bundle)
    found: dict[Path, list[Start]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as scratch:
        bundles = Path(scratch) / "bundles"
        bundles.mkdir()
        (bundles / bundle.resolve().name).symlink_to(bundle.resolve())
        for number in range(repetitions + 1):
            for checkout in checkouts:
                start = _start(checkout, bundles, command, path, body)
                tell(f"{checkout}: {start.wall_s:.2f} s, {start.cpu_s:.2f} s of processors")
                if number:
                    found[checkout].append(start)
    return found


def start_table(found: dict[Path, list[Start]]) -> str:
    """Medians and ranges, one line per checkout."""
    lines = ["| checkout | first answer, s | processor time, s |", "|---|---|---|"]
    for checkout, starts in found.items():
        walls, cpus = [each.wall_s for each in starts], [each.cpu_s for each in starts]
        lines.append(f"| {checkout} | {_range(walls)} | {_range(cpus)} |")
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _request(bundle: Path) -> tuple[str, bytes]:
    """The path and body of a request that a bundle answers."""
    manifest = read_manifest(bundle)
    if manifest.task == "translate":
        source, target = manifest.languages.trained[0]
        return "/translate", json.dumps({"q": "1 2 3", "source": source, "target": target}).encode()
    if manifest.task == "generate":
        asked = {"model": manifest.name, "prompt": "1 2 3", "max_tokens": 1}
        return "/v1/completions", json.dumps(asked).encode()
    raise BenchError(
        f"{bundle} must be for 'translate' or 'generate', got {manifest.task!r}; name another"
    )


def _start(checkout: Path, bundles: Path, command: str, path: str, body: bytes) -> Start:
    """Start a server, wait for its first answer, and end it."""
    port = free_port()
    words = {
        "macaron": ["-m", "macaron", "serve", "--port", str(port)],
        "bentoml": ["-m", "bentoml", "serve", "--port", str(port), "--host", "127.0.0.1", "."],
    }
    begin = time.monotonic()
    with _running([sys.executable, *words[command]], checkout, bundles) as process:
        while not _answers(port, path, body):
            if process.poll() is not None or time.monotonic() > begin + _MOST_S:
                raise BenchError(f"the server of {checkout} does not answer within {_MOST_S} s")
            time.sleep(_BETWEEN_S)
        wall = time.monotonic() - begin
        return Start(wall, _cpu(process.pid))


@contextlib.contextmanager
def _running(
    command: list[str], checkout: Path, bundles: Path
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "MACARON_BUNDLES": str(bundles), "BENTOML_DO_NOT_TRACK": "True"}
    process = subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_group(process)


def _answers(port: int, path: str, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_MOST_S)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _cpu(pid: int) -> float:
    """Processor time of a process and all its descendants, those that have ended included."""
    total, parent = 0.0, psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
