"""A server as its users start it: a command that listens on a port of this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine.memory import pss_of_tree

_READY_S = 180.0
"""Seconds within which a server must answer its first request."""
_END_S = 30.0
"""Seconds that a server has to end by itself."""
_ANSWER_S = 60.0
"""Seconds that a single answer may take."""
_POLL_S = 0.05
_HOME = {
    "HOME": ".",
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_CACHE_HOME": "cache",
}
"""Variables by which programs find where to keep files, with folders below the server's own."""
_SETTINGS = ("MACARON_", "ARGOS_", "LT_", "CT2_")
"""How variables begin that set options of the servers; the caller's are not handed on."""
_PORTS = range(20_000, 32_768)
"""Where servers listen: below the ports that Linux gives to connections (ip_local_port_range)."""
_LOG_CHARACTERS = 400
"""Characters of a server's last output that an error shows."""


def free_port() -> int:
    """A port of this machine on which nothing listens, and which no connection is given meanwhile.

    A server takes seconds before it listens. Of the ports that the system gives to connections,
    and to the sockets of BentoML itself, some other program would take one now and then.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):  # somebody listens there
            probe.bind(("127.0.0.1", port))
            return port


class HttpServer:
    """A running server that answers `POST /translate`."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        """`log` is the file of its output."""
        self.name, self._port, self._process, self._log = name, port, process, log

    @property
    def url(self) -> str:
        """The address to which texts are sent."""
        return f"http://127.0.0.1:{self._port}/translate"

    @property
    def memory(self) -> int:
        """Bytes that its processes hold now, as `pss_of_tree` counts them."""
        return pss_of_tree(self._process.pid)

    def wait_until_ready(self, body: Mapping[str, Any]) -> None:
        """Wait until it answers a request. Raises BenchError, with the end of its output, if it
        ends before or takes longer than three minutes."""
        until = time.monotonic() + _READY_S
        while (status := self._post(body)[0]) != 200:
            if (code := self._process.poll()) is not None:
                raise self._error(f"the server ended with status {code}")
            if time.monotonic() > until:
                raise self._error(
                    f"the server did not answer within {_READY_S:.0f} s (last status {status})"
                )
            time.sleep(_POLL_S)

    def translate(self, body: Mapping[str, Any]) -> str:
        """The translation of one text. Raises BenchError for another answer."""
        status, content = self._post(body)
        try:
            text = json.loads(content)["translatedText"] if status == 200 else None
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            shown = content[:_LOG_CHARACTERS].decode(errors="replace")
            raise self._error(f"status {status} without a translation: {shown}")
        return text

    def _post(self, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Status and content of an answer; status 0 if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/translate", json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def _error(self, reason: str) -> BenchError:
        """An error with the end of the server's output, in one line."""
        output = " ".join(self._log.read_text(encoding="utf-8", errors="replace").split())
        end = f"; its output ends with: {output[-_LOG_CHARACTERS:]}" if output else ""
        return BenchError(f"{self.name}: {reason}{end}")


@contextlib.contextmanager
def running_server(
    name: str, command: Sequence[str], port: int, folder: Path, environment: Mapping[str, str]
) -> Iterator[HttpServer]:
    """A started server for as long as the block, in a process group of its own.

    `folder` must not exist; the server runs in it and has its home and its output there, so that
    it writes nothing into the user's home. `environment` is added to the caller's, without the
    caller's settings of these servers. Raises BenchError if the command cannot be started.
    """
    folder.mkdir(parents=True)
    kept = {key: text for key, text in os.environ.items() if not key.startswith(_SETTINGS)}
    home = {key: str((folder / place).resolve()) for key, place in _HOME.items()}
    log = folder / "output.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**kept, **home, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends this process alone, which then ends it
            )
        except OSError as error:
            raise BenchError(f"{name}: {error}") from error
    try:
        yield HttpServer(name, port, process, log)
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a process group, by force after half a minute, and whatever is left
    of its group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
