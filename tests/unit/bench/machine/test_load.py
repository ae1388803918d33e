"""The load generator: arrivals, and latencies that count from when a request is due."""

from __future__ import annotations

import gc
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.machine.load import Load, arrivals, full_load, poisson_load


class Handler(BaseHTTPRequestHandler):
    """Answers one request at a time, each after 20 ms; every fifth text fails."""

    protocol_version = "HTTP/1.1"
    turn = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.turn:
            time.sleep(0.02)
        self.send_response(500 if b'"bad"' in body else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_arrivals_are_those_of_a_poisson_process() -> None:
    times = arrivals(50.0, 200.0, seed=3)
    assert times == arrivals(50.0, 200.0, seed=3)
    assert times != arrivals(50.0, 200.0, seed=4)
    assert times == sorted(times)
    assert times[-1] < 200.0
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert abs(len(times) - 10_000) < 400  # four standard deviations
    assert abs(statistics.mean(gaps) * 50 - 1) < 0.04
    assert abs(statistics.stdev(gaps) * 50 - 1) < 0.06  # as large as the mean


def test_latency_counts_from_when_a_request_is_due(url: str) -> None:
    """A server that answers 50 a second gets 100: whoever comes late waits for all before him."""
    load = poisson_load(url, [{"q": "good"}], rate=100.0, seconds=1.0, seed=1)
    assert load.failed == 0
    assert len(load.latencies_ms) == len(arrivals(100.0, 1.0, seed=1))
    assert max(load.latencies_ms) > 500
    assert load.rate < 60
    assert load.goodput(100) < load.goodput(10_000) == load.rate


def test_failures_are_counted(url: str) -> None:
    load = full_load(url, [{"q": "good"}, {"q": "bad"}], clients=2, seconds=0.5)
    assert load.failed > 0
    assert abs(load.failed - len(load.latencies_ms)) <= 2
    assert load.percentile(100) == float("inf")


def test_percentiles_are_nearest_ranks() -> None:
    load = Load([float(n) for n in range(1, 101)], failed=0, seconds=10.0, generator_cpu=0.0)
    assert [load.percentile(p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    half_lost = Load([1.0, 2.0], failed=2, seconds=10.0, generator_cpu=0.0)
    assert half_lost.percentile(50) == 2.0
    assert half_lost.percentile(95) == float("inf")
    assert half_lost.goodput(1.5) == 0.1


def test_connections_that_the_server_ends_are_closed() -> None:
    class Ends(Handler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            super().do_POST()
            time.sleep(0.5)  # the connection is open longer than the clients

    with ThreadingHTTPServer(("127.0.0.1", 0), Ends) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        load = full_load(url, [{"q": "good"}], clients=3, seconds=0.3)
        server.shutdown()
    assert load.failed == 0
    assert len(load.latencies_ms) > 3
    gc.collect()  # what is not closed is a ResourceWarning, which is an error here
