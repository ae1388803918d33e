"""An encoder over HTTP beside its engine alone: the share of the throughput that remains with HTTP.

Both read the same texts in the same requests of the same number of concurrent clients, including
tokenization, each in a process that uses all cores. The HTTP route is OpenAI's `/v1/embeddings`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from bench.errors import BenchError
from bench.machine.load import full_load
from bench.reports.report import Machine, head_lines, table_line
from bench.systems.processes.child import start_child
from bench.systems.processes.repetitions import Progress
from serving.bundle.folder import read_manifest
from serving.encoding.presets import load_reader
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.models.served import ServedEncoder

FORMATS = ("base64", "float")
_CLIENTS, _BACKLOG = 16, 2048
_READY = "ready\n"


@dataclass(frozen=True)
class EncoderServerPlan:
    """The parameters of a measurement of a server for encoders."""

    bundle: Path
    """A bundle of the task `encode`."""
    texts: list[str]
    batches: tuple[int, ...]
    """Numbers of texts per request."""
    repetitions: int
    seconds: int
    """Duration of each load."""
    threads: int


@dataclass(frozen=True)
class EncoderRates:
    """Texts per second in requests of one size, one entry per repetition."""

    batch: int
    alone: list[float]
    over_http: dict[str, list[float]]
    """Texts per second over HTTP, by the format of the vectors in the answer."""


def time_encoder_server(plan: EncoderServerPlan, progress: Progress) -> list[EncoderRates]:
    """Measure the engine alone and each format over HTTP in turns, after a warm-up turn.

    Raises BenchError if the bundle cannot be served or a request fails.
    """
    asked = {"bundle": str(plan.bundle), "threads": plan.threads, "texts": plan.texts}
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        process = start_child(__name__, {**asked, "fd": listener.fileno()}, [listener.fileno()])
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/embeddings"
    try:
        assert process.stdout is not None
        if process.stdout.readline() != _READY:
            raise BenchError(f"the server of {plan.bundle} did not start; see the messages above")
        found = [EncoderRates(size, [], {kind: [] for kind in FORMATS}) for size in plan.batches]
        for repetition in range(plan.repetitions + 1):
            for each in found:
                progress(f"requests of {each.batch}: repetition {repetition} of {plan.repetitions}")
                alone = _alone({**asked, "batch": each.batch, "seconds": plan.seconds})
                rates = {kind: _over_http(plan, url, each.batch, kind) for kind in FORMATS}
                if repetition:
                    each.alone.append(alone)
                    for kind, rate in rates.items():
                        each.over_http[kind].append(rate)
    finally:
        process.terminate()
        process.communicate()
    return found


def encoder_server_markdown(
    command: str, machine: Machine, plan: EncoderServerPlan, found: Sequence[EncoderRates]
) -> str:
    """The table, with HTTP's share of the engine's throughput."""
    subject = (
        f"{plan.bundle.name}, {len(plan.texts)} texts, {_CLIENTS} clients at once, texts to "
        f"vectors with tokenizing; median of {plan.repetitions}. Over HTTP the cores also run the "
        "clients."
    )
    columns = ["texts a request", "engine alone, texts/s"]
    columns += [f"over HTTP, {kind}" for kind in FORMATS]
    lines = [*head_lines(command, machine, subject), "", table_line(columns)]
    lines.append(table_line(["---:"] * len(columns)))
    for each in found:
        alone = statistics.median(each.alone)
        rates = [statistics.median(each.over_http[kind]) for kind in FORMATS]
        shares = [f"{rate:,.0f} ({rate / alone:.0%})" for rate in rates]
        lines.append(table_line([str(each.batch), f"{alone:,.0f}", *shares]))
    return "\n".join(lines)


def _over_http(plan: EncoderServerPlan, url: str, batch: int, kind: str) -> float:
    """Texts per second over HTTP."""
    model = read_manifest(plan.bundle).name
    bodies = [
        {"model": model, "input": request, "encoding_format": kind}
        for request in _requests(plan.texts, batch)
    ]
    load = full_load(url, bodies, _CLIENTS, plan.seconds)
    if load.failed:
        raise BenchError(f"{load.failed} requests to {url} failed")
    return load.rate * batch


def _requests(texts: Sequence[str], batch: int) -> list[list[str]]:
    """Requests with the same number of texts, in the file's order, starting over at its end."""
    return [
        [texts[(start + place) % len(texts)] for place in range(batch)]
        for start in range(0, len(texts), batch)
    ]


def _alone(asked: dict[str, Any]) -> float:
    child = start_child(__name__, asked)
    output = child.communicate()[0]
    if child.returncode:
        raise BenchError("the engine without HTTP failed; see the messages above")
    return float(output)


def _load(asked: dict[str, Any]) -> tuple[Registry, Settings, ServedEncoder]:
    """Load the bundle as a server does, on all available cores."""
    settings = Settings.from_environment({"MACARON_THREADS": str(asked["threads"])})
    registry = Registry(settings)
    registry.start([load_reader(Path(asked["bundle"]), settings.preset, settings.threads)])
    (model,) = registry.encoders
    return registry, settings, model


async def _read(model: ServedEncoder, requests: Sequence[Sequence[str]], seconds: float) -> float:
    """Texts per second of clients that send a request as soon as the last one is answered."""
    read = number = 0
    begin = time.monotonic()

    async def client() -> None:
        nonlocal read, number
        while time.monotonic() < begin + seconds:
            number += 1
            request = requests[number % len(requests)]
            encoded = [model.inputs.encode(text, truncate=True) for text in request]
            tickets = model.scheduler.submit_all(encoded)
            await asyncio.gather(*(ticket.wait() for ticket in tickets))
            read += len(request)

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
    return read / (time.monotonic() - begin)


def main() -> None:
    """The child process: answers on the given socket, or reads without HTTP and prints the
    speed."""
    asked = json.loads(sys.stdin.read())
    registry, settings, model = _load(asked)
    if "fd" in asked:
        app = create_app(registry, settings)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        print(_READY, end="", flush=True)
        server.run(sockets=[socket.socket(fileno=asked["fd"])])
        return
    requests = _requests(asked["texts"], asked["batch"])
    asyncio.run(_read(model, requests, asked["seconds"] / 5))  # warm-up
    print(asyncio.run(_read(model, requests, asked["seconds"])))
    model.scheduler.close()


if __name__ == "__main__":
    main()
