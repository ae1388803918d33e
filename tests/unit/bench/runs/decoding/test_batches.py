"""The bench of batches: what its lines hold, and the table of clients without and beside work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench.errors import BenchError
from bench.machine.load import Load
from bench.runs.decoding.batches import BatchesPlan, batch_bodies, run_batches
from bench.runs.decoding.beside import LoadsBeside, latency_lines, loads_beside


def plan(*texts: str) -> BatchesPlan:
    return BatchesPlan(Path("x"), texts, ("de", "en"), (1, 4), 10, 1.0, 1, 1)


def test_the_lines_of_a_batch_have_as_many_texts_as_asked_and_repeat_them() -> None:
    bodies = batch_bodies(plan(), ["a", "b", "c"], 4)
    assert [body["q"] for body in bodies] == [list("abca"), list("bcab"), list("cabc")]
    assert all((body["source"], body["target"]) == ("de", "en") for body in bodies)
    assert len(batch_bodies(plan(), ["a"], 1)) == 10


def test_one_text_is_too_few_for_clients_and_lines() -> None:
    with pytest.raises(BenchError, match="two lines, got 1"):
        run_batches(plan("Hallo"), lambda _: None)


def load(*latencies_ms: float) -> Load:
    return Load([*latencies_ms], 0, 1.0, 0.0)


def test_ratios_are_of_the_pairs_of_one_repetition() -> None:
    beside = {"beside a": [load(20.0), load(120.0)], "beside b": [load(40.0), load(400.0)]}
    found = LoadsBeside([load(10.0), load(100.0)], beside)
    lines = latency_lines("alone", found, 1.0)
    assert "| alone | 2 | 55 | 55 (10-100) | 0 |" in lines
    assert "| beside b | 2 | 220 | 220 (40-400) | 0 |" in lines
    assert "| ratio of the pairs, beside a |  |  | 1.60 (1.20-2.00) |  |" in lines
    single = latency_lines("alone", LoadsBeside(found.alone, {"beside b": beside["beside b"]}), 1.0)
    assert single[-1] == "| ratio of the pairs |  |  | 4.00 (4.00-4.00) |  |"


def test_clients_ask_by_turns_without_and_within_each_work() -> None:
    running: list[str] = []
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            turn = "".join(running)
            if seen[-1:] != [turn]:
                seen.append(turn)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    @contextmanager
    def work(name: str) -> Iterator[None]:
        running.append(name)
        yield
        running.remove(name)

    works: dict[str, Callable[[], AbstractContextManager[None]]] = {
        name: partial(work, name) for name in "ab"
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    found = loads_beside(url, [{"q": "x"}], works, 0.7, 2, lambda _: None)
    server.shutdown()
    server.server_close()
    assert seen == ["", "a", "b", "", "a", "b"]
    assert len(found.alone) == len(found.beside["a"]) == len(found.beside["b"]) == 2
    assert not any(each.failed for each in (*found.alone, *found.beside["b"]))
