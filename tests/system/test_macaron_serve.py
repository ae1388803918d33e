"""`macaron serve` in processes of its own: what Circus and a worker without BentoML have to do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from bench.systems.processes.http_server import free_port
from tests.system.faults import seconds_until, worker_pids
from tests.system.server import ROOT, Server, environment, started, unloadable

BUNDLE = ROOT / "models" / "macaron-de-en"


def command(port: int) -> list[str]:
    return [sys.executable, "-m", "macaron", "serve", "--port", str(port)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    scratch, port = tmp_path_factory.mktemp("server"), free_port()
    shutil.copytree(BUNDLE, scratch / "models" / BUNDLE.name)
    env = environment(scratch / "models", scratch)
    with started(command(port), port, ROOT, env, scratch / "log.txt") as server:
        yield server
        server.process.terminate()
        assert server.process.wait(60) == 0


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs /proc")
def test_only_who_decodes_has_the_kernels_in_memory(server: Server) -> None:
    """So no model is loaded twice: neither who watches nor who answers could load one. Programs
    need no ONNX Runtime."""
    assert server.ask("Guten Morgen!").status_code == 200

    def holds(pid: int, library: str) -> bool:
        return library in Path(f"/proc/{pid}/maps").read_text()

    (worker,) = worker_pids(server)
    loading = [child.pid for child in psutil.Process(worker).children()]
    pids = (server.process.pid, worker, *loading)
    assert [holds(pid, "/kernels-") for pid in pids] == [False, False, True]
    assert not any(holds(pid, "onnxruntime") for pid in pids)


def test_a_log_line_has_the_trace_of_the_caller(server: Server) -> None:
    headers = {"X-Request-ID": "traced", "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    assert httpx.get(f"{server.url}/languages", headers=headers, timeout=60).status_code == 200
    log = Path(f"/proc/{server.process.pid}/fd/1").resolve()

    def lines() -> list[str]:
        return [line for line in log.read_text().splitlines() if '"traced"' in line]

    seconds_until(lambda: bool(lines()), 20)  # it is written when the answer has been sent
    (line,) = lines()
    assert json.loads(line)["trace_id"] == "ab" * 16


def test_a_hangup_reloads_and_keeps_the_worker(server: Server) -> None:
    def reloads() -> bool:
        return (
            'macaron_reloads_total{result="done"} 1.0'
            in httpx.get(f"{server.url}/metrics", timeout=60).text
        )

    (worker,) = worker_pids(server)
    assert not reloads()
    server.process.send_signal(signal.SIGHUP)
    seconds_until(reloads, 60)
    assert worker_pids(server) == [worker]
    assert server.ask("Guten Morgen!").status_code == 200


def test_a_worker_that_dies_is_replaced(server: Server) -> None:
    (worker,) = worker_pids(server)
    os.kill(worker, signal.SIGKILL)
    seconds_until(lambda: worker_pids(server) not in ([worker], []), 60)

    def answers() -> bool:
        return httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200

    seconds_until(answers, 60)
    assert server.ask("Guten Morgen!").status_code == 200


def ended(bundles: Path, scratch: Path, port: int) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself."""
    return subprocess.run(
        command(port),
        cwd=ROOT,
        env=environment(bundles, scratch),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_damaged_bundle_is_refused_with_one_line(tmp_path: Path) -> None:
    shutil.copytree(BUNDLE, tmp_path / "models" / BUNDLE.name)
    with (tmp_path / "models" / BUNDLE.name / "step.onnx").open("ab") as file:
        file.write(b"x")
    done = ended(tmp_path / "models", tmp_path, free_port())
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("macaron: error: ")
    assert "step.onnx: sha256 is" in line


def test_an_address_that_is_taken_is_named(server: Server, tmp_path: Path) -> None:
    done = ended(BUNDLE.parent, tmp_path, server.port)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]  # behind Circus' own
    assert f"127.0.0.1:{server.port}" in line
    assert "in use" in line


def test_a_bundle_that_cannot_be_loaded_ends_the_server_with_a_failure(tmp_path: Path) -> None:
    shutil.copytree(BUNDLE, tmp_path / "models" / BUNDLE.name)
    unloadable(tmp_path / "models" / BUNDLE.name)
    done = ended(tmp_path / "models", tmp_path, free_port())
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("macaron: error: ")]
    assert BUNDLE.name in line
