"""`bentoml serve` in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from bench.systems.processes.http_server import free_port

ROOT = Path(__file__).resolve().parents[2]
PAIR = {"source": "de", "target": "en"}


@dataclass(frozen=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, q: object, **fields: Any) -> httpx.Response:
        """Request a translation."""
        return httpx.post(f"{self.url}/translate", json={"q": q, **PAIR, **fields}, timeout=120)

    def processes(self) -> list[psutil.Process]:
        """The server's processes, of which not all are in its group."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def kill(self) -> None:
        """End all of them, as a machine that fails does."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # it ended with its parent
                process.kill()
        self.process.wait()
        psutil.wait_procs(processes, 30)  # none of them takes a connection any more

    def send(self, data: bytes, *, read: bool = True) -> bytes:
        """Send raw bytes over one connection; returns the answer up to the server's close."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(data)
            answer = b""
            while read and (part := connection.recv(65536)):
                answer += part
            return answer


def environment(bundles: Path, scratch: Path, **settings: str) -> dict[str, str]:
    """The server's environment, which keeps everything in `scratch` and on this machine."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MACARON_")}
    return {
        **own,
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_HOME": str(scratch / "bentoml"),
        "MACARON_BUNDLES": str(bundles),
        "MACARON_THREADS": "1",
        **settings,
    }


def command(port: int, target: str = ".") -> list[str]:
    bentoml = Path(sys.executable).with_name("bentoml")
    return [str(bentoml), "serve", "--host", "127.0.0.1", "--port", str(port), target]


@contextmanager
def running(
    bundles: Path, scratch: Path, *, bento: str | None = None, **settings: str
) -> Iterator[Server]:
    """A running server, which is stopped at the end unless it has stopped by then.

    It serves the working tree, or the Bento with this tag.
    """
    port = free_port()
    where, env = scratch if bento else ROOT, environment(bundles, scratch, **settings)
    with started(command(port, bento or "."), port, where, env, scratch / "log.txt") as server:
        yield server


@contextmanager
def running_with_store(factory: pytest.TempPathFactory, *names: str) -> Iterator[Server]:
    """A running server with these shipped bundles, and a store in a file."""
    bundles, scratch = factory.mktemp("bundles"), factory.mktemp("server")
    for name in names:
        shutil.copytree(ROOT / "models" / name, bundles / name)
    with running(bundles, scratch, MACARON_STORE=f"sqlite:///{scratch / 'store.db'}") as server:
        yield server


@contextmanager
def started(
    command: list[str],
    port: int,
    where: Path,
    env: dict[str, str],
    log: Path,
    within_s: float = 120,
) -> Iterator[Server]:
    """The same for any command that serves on this port, with its output in a file."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=where,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process, port)
    try:
        end = time.monotonic() + within_s
        while not is_ready(server):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def is_ready(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def unloadable(bundle: Path) -> None:
    """Its hashes are right, so that only whoever loads it finds out."""
    (bundle / "step.onnx").write_bytes(b"no graph")
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"]["step.onnx"] = hashlib.sha256(b"no graph").hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))
