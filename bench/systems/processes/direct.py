"""This engine's scheduler without HTTP, in separate processes, to measure the time that HTTP
adds."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine.load import Load
from bench.subjects.job import BenchJob, Search
from bench.systems.processes.child import start_child
from serving.processes.translator import IsolatedTranslator
from serving.server.http.settings import Settings
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request


def direct_load(
    job: BenchJob,
    bundle: Path,
    search: Search,
    texts: Sequence[str],
    clients: int,
    seconds: float,
    processes: int = 1,
) -> Load:
    """Run `clients` that each submit the next text as soon as their last is translated. They are
    spread over `processes`, each of which does the whole job."""
    asked: dict[str, Any] = {
        "job": asdict(job),
        "bundle": str(bundle),
        "search": asdict(search),
        "texts": list(texts),
        "seconds": seconds,
    }
    shares = [clients // processes + (n < clients % processes) for n in range(processes)]
    children = [start_child(__name__, {**asked, "clients": share}) for share in shares if share]
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise BenchError("the scheduler without HTTP failed; see the messages above")
    loads = [Load(**json.loads(output)) for output in outputs]
    latencies = [latency for load in loads for latency in load.latencies_ms]
    return Load(latencies, 0, max(load.seconds for load in loads), 0.0)


async def _full(
    scheduler: TranslationScheduler, requests: Sequence[Request], clients: int, seconds: float
) -> Load:
    latencies: list[float] = []
    number, begin = 0, time.monotonic()

    async def client() -> None:
        nonlocal number
        while (now := time.monotonic()) < begin + seconds:
            number += 1
            await scheduler.submit(requests[number % len(requests)]).wait()
            latencies.append((time.monotonic() - now) * 1000)

    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(latencies, 0, time.monotonic() - begin, 0.0)


def main() -> None:
    """Run the child process: load the bundle, warm up, and print a Load as JSON."""
    asked = json.loads(sys.stdin.read())
    job, search = BenchJob(**asked["job"]), Search(**asked["search"])
    limits = Settings.from_environment({}).batch_limits("cpu")
    translator = IsolatedTranslator(
        Path(asked["bundle"]), threads=job.threads, workers=job.workers, limits=limits
    )
    scheduler = TranslationScheduler(translator, limits=limits, workers=job.workers)
    requests = [Request(text=text, options=search.options()) for text in asked["texts"]]
    clients, seconds = asked["clients"], asked["seconds"]
    asyncio.run(_full(scheduler, requests, clients, seconds / 5))  # warm-up
    load = asyncio.run(_full(scheduler, requests, clients, seconds))
    scheduler.close()
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
