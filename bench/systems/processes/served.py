"""Runs one system behind this project's HTTP layer, in separate processes that share a socket.

CTranslate2 has no server. Here it gets the same app; whenever one of its workers is free, the
waiting requests form a batch.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import uvicorn

from bench.errors import BenchError
from bench.machine.processor import child_environment
from bench.subjects.job import BenchJob, LoadedSystem, Search, token_id
from bench.systems.by_kind import load
from bench.systems.processes.child import start_child
from serving.bundle.folder import read_manifest
from serving.processes.translator import IsolatedTranslator
from serving.queue.ticket import HeldWork
from serving.search.ids import EOS_ID
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.models.served import ServedTranslator
from serving.translation.results import Translation
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, Request, TranslationTicket

_MAX_BATCH = 32
_BACKLOG = 2048
_READY = "ready\n"


class _PeerTexts:
    """Replaces a `TextProcessor` for a system that takes each text unchanged."""

    score = None

    def fits(self, text: str) -> bool:
        """Every text is one sentence."""
        return True

    usual = fits

    def greeting(self, text: str, source: str, target: str) -> int:
        """Always 0: no text is divided."""
        return 0

    def spells(self, text: str) -> bool:
        """Always True: no text is kept from the system because of its letters."""
        return True


class PeerScheduler:
    """Replaces a `TranslationScheduler` for a system that decodes whole batches."""

    texts = _PeerTexts()

    def __init__(self, system: LoadedSystem, search: Search, job: BenchJob) -> None:
        self._system, self._search, self._texts = system, search, job.tokenizer_file is not None
        self._waiting: list[tuple[Any, TranslationTicket]] = []
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, daemon=True) for _ in range(job.workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit_all(
        self,
        requests: Sequence[Request],
        max_wait_s: float | None = None,
        held: list[HeldWork] | None = None,
    ) -> list[TranslationTicket]:
        """Queue requests of one sentence each, without a limit on waiting; a free worker takes all
        waiting ones as one batch. Clients of a bench wait for all of them, so `held` must be
        None."""
        del max_wait_s
        assert held is None
        tickets = [TranslationTicket(request.timeout_s) for request in requests]
        texts = [request.text for request in requests]
        sources = texts if self._texts else [_ids(text) for text in texts]
        prepared = self._system.prepare(sources)
        with self._changed:
            self._waiting += zip(prepared, tickets, strict=True)
            self._changed.notify()
        return tickets

    @property
    def queue_depth(self) -> int:
        """Requests that no worker has taken yet."""
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                batch = self._waiting[:_MAX_BATCH]
                del self._waiting[:_MAX_BATCH]
            started = time.monotonic()
            try:
                results = self._system.call([source for source, _ in batch], self._search)
                outputs = self._system.outputs(results)
            except RuntimeError as error:
                for _, ticket in batch:
                    ticket.fail(error)
                continue
            for (_, ticket), output in zip(batch, outputs, strict=True):
                text = output.text if self._texts else " ".join(output.tokens)
                timing = ticket.timing(started, 0.0, len(batch))
                ticket.complete(Completed(Translation(text), timing))


class Served:
    """The parent's end: servers that are ready. Ends with `with`."""

    def __init__(
        self, name: str, job: BenchJob, bundle: Path, search: Search, processes: int = 1
    ) -> None:
        """`bundle` is this engine's bundle, whose manifest names the languages for every system.
        Each of the processes does the whole job, on the same socket, as BentoML's workers do."""
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/translate"
            first = {
                "job": asdict(job),
                "bundle": str(bundle),
                "search": asdict(search),
                "fd": listener.fileno(),
            }
            env = child_environment(job.precision)
            self._processes = [
                start_child(__name__, first, [listener.fileno()], env) for _ in range(processes)
            ]
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != _READY:
                self._end()
                raise BenchError(f"the server of {name} did not start; see the messages above")

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate()


def _ids(text: str) -> list[int]:
    """Ids that end with eos, of a text that spells each as `id_token` does."""
    return [*map(token_id, text.split()), EOS_ID]


def main() -> None:
    """Run the server's process: load a system and answer on the given socket."""
    first = json.loads(sys.stdin.read())
    job, search = BenchJob(**first["job"]), Search(**first["search"])
    bundle = Path(first["bundle"])
    settings = Settings.from_environment({})
    if job.kind == "onnx":
        limits = settings.batch_limits("cpu")
        translator = IsolatedTranslator(
            bundle, threads=job.threads, workers=job.workers, limits=limits
        )
        scheduler: Any = TranslationScheduler(translator, limits=limits, workers=job.workers)
    else:
        scheduler = PeerScheduler(load(replace(job, shared_calls=False)), search, job)
    registry = Registry(settings)
    registry.add(ServedTranslator(read_manifest(bundle), search.options(), scheduler))
    app = create_app(registry, settings)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    print(_READY, end="", flush=True)  # the socket listens: clients that connect now wait a moment
    server.run(sockets=[socket.socket(fileno=first["fd"])])


if __name__ == "__main__":
    main()
