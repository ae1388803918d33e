"""A server of one bundle that takes documents, in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from bench.errors import BenchError
from bench.systems.processes.child import start_child
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry

_BACKLOG = 2048
_READY = "ready\n"
_POLL_S = 0.05


class DocumentServer:
    """The parent's end: a server that is ready. Ends with `with`."""

    def __init__(self, bundle: Path, threads: int, folder: Path) -> None:
        """`folder` is empty; the server keeps what it needs there. Raises BenchError where it does
        not start."""
        bundles = folder / "bundles"
        bundles.mkdir()
        (bundles / bundle.name).symlink_to(bundle.resolve())
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            environment = {
                "MACARON_BUNDLES": str(bundles),
                "MACARON_DOCUMENTS": str(folder / "documents"),
                "MACARON_THREADS": str(threads),
            }
            asked = {"fd": listener.fileno(), "environment": environment}
            self._process = start_child(__name__, asked, [listener.fileno()])
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            self._end()
            raise BenchError(f"the server of {bundle} did not start; see the messages above")

    def __enter__(self) -> DocumentServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def submit(self, content: bytes, name: str, source: str, target: str) -> str:
        """Hand a document in; gives its id once it is being translated."""
        answer = httpx.post(
            f"{self.url}/documents",
            files={"file": (name, content)},
            data={"source": source, "target": target},
        )
        state = answer.json()
        while state.get("state") == "queued":
            time.sleep(_POLL_S)
            state = self.state(state["id"])
        if state.get("state") != "translating":
            raise BenchError(f"the document is not being translated: {state}")
        return str(state["id"])

    def state(self, id: str) -> dict[str, Any]:
        """What is known of a document."""
        found: dict[str, Any] = httpx.get(f"{self.url}/documents/{id}").json()
        return found

    def remove(self, id: str) -> None:
        """Delete a document, done or not."""
        httpx.delete(f"{self.url}/documents/{id}")

    def _end(self) -> None:
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    """What the server's process does: load the bundle and answer on the given socket."""
    asked = json.loads(sys.stdin.read())
    settings = Settings.from_environment(os.environ | asked["environment"])
    registry = Registry(settings)
    registry.load()
    app = create_app(registry, settings)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    print(_READY, end="", flush=True)
    server.run(sockets=[socket.socket(fileno=asked["fd"])])


if __name__ == "__main__":
    main()
