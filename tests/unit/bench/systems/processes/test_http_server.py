"""A server's process: its home, its answers, its end, and the reason where it does not start."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from bench.errors import BenchError
from bench.systems.processes.http_server import HttpServer, free_port, running_server

SERVER = """\
import json, os, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

print("a line of the server's own", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
refused = [503, 503]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = refused.pop() if refused else 200
        found = os.environ.get(body["q"], "none") if body["q"] != "child" else str(child.pid)
        answer = "rubbish" if body["q"] == "rubbish" else json.dumps({"translatedText": found})
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def serving(
    folder: Path, code: str = SERVER, environment: dict[str, str] | None = None
) -> AbstractContextManager[HttpServer]:
    port = free_port()
    command = [sys.executable, "-c", code, str(port)]
    return running_server("a server", command, port, folder / "own", environment or {})


def value(server: HttpServer, name: str) -> str:
    return server.translate({"q": name})


def test_a_port_is_free_and_none_that_connections_are_given() -> None:
    for _ in range(20):
        with socket.socket() as listener, socket.socket() as given:
            listener.bind(("127.0.0.1", free_port()))
            listener.listen()
            given.bind(("127.0.0.1", 0))
            assert listener.getsockname()[1] < given.getsockname()[1]


def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen()
        taken = listener.getsockname()[1]
        ports = iter([taken, taken, free_port()])
        monkeypatch.setattr("secrets.choice", lambda _: next(ports))
        assert free_port() != taken
        assert not list(ports)


def test_a_server_is_ready_where_it_answers_and_its_files_are_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACARON_THREADS", "7")
    monkeypatch.setenv("ARGOS_BEAM_SIZE", "9")
    monkeypatch.setenv("CT2_USE_MKL", "1")
    monkeypatch.setenv("OTHER", "kept")
    with serving(tmp_path, environment={"LT_THREADS": "3"}) as server:
        server.wait_until_ready({"q": "HOME"})
        assert value(server, "HOME") == str(tmp_path / "own")
        assert value(server, "XDG_CACHE_HOME") == str(tmp_path / "own" / "cache")
        assert (value(server, "OTHER"), value(server, "LT_THREADS")) == ("kept", "3")
        for name in ("MACARON_THREADS", "ARGOS_BEAM_SIZE", "CT2_USE_MKL"):
            assert value(server, name) == "none"
        assert server.url.endswith("/translate")
        assert 2**20 < server.memory < 2**30
        with pytest.raises(BenchError, match="a server: status 200 without a translation: rubbish"):
            value(server, "rubbish")


@pytest.mark.parametrize("error", [KeyboardInterrupt, BenchError])
def test_a_server_ends_with_all_its_processes(tmp_path: Path, error: type[BaseException]) -> None:
    used: list[HttpServer] = []
    children: list[int] = []

    def interrupted() -> None:
        with serving(tmp_path) as server:
            server.wait_until_ready({"q": "HOME"})
            used.append(server)
            children.append(int(value(server, "child")))
            raise error

    with pytest.raises(error):
        interrupted()
    (server,), (child,) = used, children
    until = time.monotonic() + 10
    while _alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(child)
    assert server.memory == 0


def _alive(pid: int) -> bool:
    """A zombie that init has not collected yet is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    code = "raise SystemExit('no model is\\n installed')"
    with serving(tmp_path, code) as server, pytest.raises(BenchError) as raised:
        server.wait_until_ready({"q": "HOME"})
    reason = "the server ended with status 1; its output ends with: no model is installed"
    assert str(raised.value) == f"a server: {reason}"


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.systems.processes.http_server._READY_S", 0.2)
    with serving(tmp_path, "import time; time.sleep(600)") as server:
        with pytest.raises(BenchError, match=r"did not answer within 0 s \(last status 0\)$"):
            server.wait_until_ready({"q": "HOME"})
        assert server.memory > 0


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with (
        pytest.raises(BenchError, match=r"^a server: .*No such file"),
        running_server("a server", [missing], free_port(), tmp_path / "own", {}),
    ):
        raise AssertionError("nothing was started")
