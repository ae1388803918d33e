"""`python -m bench batches`: the latency of a server's clients while it answers a batch."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines
from bench.runs.decoding.beside import LoadsBeside, latency_lines, loads_beside
from bench.systems.processes.background_server import BackgroundServer
from bench.systems.processes.repetitions import Progress


@dataclass(frozen=True)
class BatchesPlan:
    """The parameters of a measurement of latencies beside a batch."""

    bundle: Path
    texts: Sequence[str]
    """Texts of one sentence each. The clients ask for the first half; the second half is for the
    batch's lines."""
    languages: tuple[str, str]
    line_texts: Sequence[int]
    """Numbers of texts per line; a batch is made for each number."""
    batch_texts: int
    """Number of texts of a whole batch."""
    seconds: float
    """Duration of each load on the server."""
    repetitions: int
    threads: int


def run_batches(plan: BatchesPlan, progress: Progress) -> LoadsBeside:
    """Measure the latency in turns without a batch and beside a batch of each line length. Raises
    BenchError for too few texts, or if a batch ends before the load on the server does."""
    if len(plan.texts) < 2:
        raise BenchError(f"--texts must have at least two lines, got {len(plan.texts)}")
    half = len(plan.texts) // 2
    with (
        tempfile.TemporaryDirectory(prefix="macaron-bench-") as folder,
        BackgroundServer(plan.bundle, plan.threads, Path(folder), store=True) as server,
    ):

        def work(size: int) -> AbstractContextManager[None]:
            return _batch(server, batch_bodies(plan, plan.texts[half:], size))

        return loads_beside(
            f"{server.url}/translate",
            [_body(plan, text) for text in plan.texts[:half]],
            {_name(size): partial(work, size) for size in plan.line_texts},
            plan.seconds,
            plan.repetitions,
            progress,
        )


def batch_bodies(plan: BatchesPlan, texts: Sequence[str], size: int) -> list[dict[str, Any]]:
    """The bodies of a batch's lines with `size` texts each; texts are repeated if there are too
    few."""
    repeated = itertools.cycle(texts)
    count = -(-plan.batch_texts // size)
    return [_body(plan, list(itertools.islice(repeated, size))) for _ in range(count)]


def batches_markdown(command: str, machine: Machine, plan: BatchesPlan, found: LoadsBeside) -> str:
    """The table of latencies."""
    subject = f"{plan.bundle.name}; medians of {plan.repetitions} interleaved repetitions."
    head = head_lines(command, machine, subject)
    return "\n".join([*head, "", *latency_lines("without a batch", found, plan.seconds)])


def write_batches(path: Path, command: str, machine: Machine, found: LoadsBeside) -> None:
    """Write the whole record as JSON."""
    record = {"command": command, "machine": asdict(machine), **asdict(found)}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _batch(server: BackgroundServer, bodies: Sequence[dict[str, Any]]) -> Iterator[None]:
    """A batch that is being answered, which ends with the context."""
    id = server.submit_batch(bodies)
    yield
    state = server.batch(id)
    server.cancel_batch(id)
    if state["status"] != "in_progress":
        raise BenchError(f"the batch must outlast the load: more --batch-texts; got {state}")


def _body(plan: BatchesPlan, q: str | list[str]) -> dict[str, Any]:
    source, target = plan.languages
    return {"q": q, "source": source, "target": target}


def _name(size: int) -> str:
    return f"beside lines of {size} text{'s' if size > 1 else ''}"
