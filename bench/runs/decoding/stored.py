"""`python -m bench store`: the time that a store adds to a request.

Whole servers, each in its own processes, take turns. On a shared machine, the processor time of a
server's processes is more reliable than wall-clock time.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.systems.processes.http_server import free_port
from bench.systems.processes.repetitions import Progress

_START_S = 120.0
_TEXTS = {
    "a number, which stays": ["12.5"],
    "a sentence, decoded": ["Das Haus ist rot.", "Wo ist der Bahnhof?", "Ich habe keine Zeit."],
}
_TIMES = {"a number, which stays": 10, "a sentence, decoded": 1}
"""Factor on the number of requests for processor time, which has a resolution of 10 ms."""
_HERE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class StoreCosts:
    """Costs for one server and one kind of request; one entry per round."""

    server: str
    kind: str
    processor_ms: list[float] = field(default_factory=list)
    """Processor time of the server's processes per request, in ms."""
    wall_ms: list[float] = field(default_factory=list)
    """Latency of a request, in ms."""


def measure_store(
    bundles: Path,
    pair: tuple[str, str],
    before: Path | None,
    rounds: int,
    requests: int,
    progress: Progress,
) -> list[StoreCosts]:
    """Send the same number of requests per round to servers without a store and with one in SQLite.
    `before` is the working tree of another version, which comes first, without a store."""
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name, ExitStack() as stack:
        store = {"MACARON_STORE": f"sqlite:///{name}/store.db"}
        wanted: list[tuple[str, Path, dict[str, str]]] = [
            ("without a store", _HERE, {}),
            ("with a store", _HERE, store),
        ]
        if before is not None:
            wanted.insert(0, ("before", before.resolve(), {}))
        servers = {}
        for label, where, settings in wanted:
            progress(f"starting the server {label}")
            env = {**settings, "MACARON_BUNDLES": str(bundles.resolve()), "MACARON_THREADS": "1"}
            servers[label] = stack.enter_context(_running(where, env, Path(name) / "log"))
        found = {(s, kind): StoreCosts(s, kind) for kind in _TEXTS for s in servers}
        for label in servers:  # warm-up
            for texts in _TEXTS.values():
                _ask(*servers[label], _bodies(texts, pair, requests))
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for kind, texts in _TEXTS.items():
                bodies = _bodies(texts, pair, requests * _TIMES[kind])
                # The first server of a round is the last of the next.
                for label in list(servers)[:: -1 if number % 2 else 1]:
                    processor, wall = _ask(*servers[label], bodies)
                    found[label, kind].processor_ms.append(processor)
                    found[label, kind].wall_ms.append(wall)
        return list(found.values())


def store_markdown(
    command: str, machine: Machine, rounds: int, requests: int, costs: Sequence[StoreCosts]
) -> str:
    """The table; ratios to the first server are medians over the rounds."""
    text = (
        f"One client; medians of {rounds} interleaved rounds of {requests} requests a server, ten "
        "times as many of those that are cheap."
    )
    lines = [*head_lines(command, machine, text), ""]
    head = ["request", "server", "processor, ms", "ratio (quartiles)", "by the clock, ms", "ratio"]
    lines += table_head(head, texts=2)
    first: dict[str, StoreCosts] = {}
    for each in costs:
        base = first.setdefault(each.kind, each)
        ratios = _ratios(each.processor_ms, base.processor_ms)
        low, middle, high = statistics.quantiles(ratios, n=4)
        cells = [each.kind, each.server, f"{statistics.median(each.processor_ms):.2f}"]
        cells += [f"{middle:.3f} ({low:.3f}-{high:.3f})"]
        cells += [f"{statistics.median(each.wall_ms):.2f}"]
        cells += [f"{statistics.median(_ratios(each.wall_ms, base.wall_ms)):.3f}"]
        lines.append(table_line(cells))
    return "\n".join(lines)


def _ratios(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(some, others, strict=True)]


def _bodies(texts: Sequence[str], pair: tuple[str, str], count: int) -> list[bytes]:
    source, target = pair
    return [
        json.dumps({"q": texts[n % len(texts)], "source": source, "target": target}).encode()
        for n in range(count)
    ]


def _ask(process: psutil.Process, port: int, bodies: Sequence[bytes]) -> tuple[float, float]:
    """Processor and wall-clock milliseconds of a request; requests are sent one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    head = {"Content-Type": "application/json"}
    begun, begin = _processor_s(process), time.monotonic()
    for body in bodies:
        connection.request("POST", "/translate", body, head)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise BenchError(f"a server has answered {answer.status}")
    wall = time.monotonic() - begin
    processor = _processor_s(process) - begun
    connection.close()
    return 1000 * processor / len(bodies), 1000 * wall / len(bodies)


def _processor_s(process: psutil.Process) -> float:
    """Processor seconds of a process and all its children."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


@contextmanager
def _running(where: Path, env: dict[str, str], log: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Start the server of a working tree; yields it and its port once it is ready."""
    port = free_port()
    bentoml = Path(sys.executable).with_name("bentoml")
    command = [str(bentoml), "serve", "--host", "127.0.0.1", "--port", str(port), "."]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MACARON_")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=where, env=own | env, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + _START_S
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"the server of {where} does not start: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
