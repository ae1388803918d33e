"""A server of one bundle that takes documents and batches, in its own process."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
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


class BackgroundServer:
    """The parent's end: a server that is ready. Ends with `with`."""

    def __init__(self, bundle: Path, threads: int, folder: Path, *, store: bool = False) -> None:
        """`folder` is empty; the server keeps its files there and, with `store`, which batches
        need, also its database. Raises BenchError if it does not start."""
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
            if store:
                environment["MACARON_STORE"] = f"sqlite:///{folder / 'store.db'}"
            asked = {"fd": listener.fileno(), "environment": environment}
            self._process = start_child(__name__, asked, [listener.fileno()])
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            self._end()
            raise BenchError(f"the server of {bundle} did not start; see the messages above")

    def __enter__(self) -> BackgroundServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def submit_document(self, content: bytes, name: str, source: str, target: str) -> str:
        """Submit a document; returns its id once its translation has started."""
        answer = httpx.post(
            f"{self.url}/documents",
            files={"file": (name, content)},
            data={"source": source, "target": target},
        )
        state = answer.json()
        while state.get("state") == "queued":
            time.sleep(_POLL_S)
            state = self.document(state["id"])
        if state.get("state") != "translating":
            raise BenchError(f"the document is not being translated: {state}")
        return str(state["id"])

    def document(self, id: str) -> dict[str, Any]:
        """The server's description of a document."""
        found: dict[str, Any] = httpx.get(f"{self.url}/documents/{id}").json()
        return found

    def remove_document(self, id: str) -> None:
        """Delete a document, done or not."""
        httpx.delete(f"{self.url}/documents/{id}")

    def submit_batch(self, bodies: Sequence[dict[str, Any]]) -> str:
        """Submit a batch whose lines are requests to translate; returns its id once the first lines
        are being answered."""
        lines = (
            {"custom_id": str(number), "method": "POST", "url": "/translate", "body": body}
            for number, body in enumerate(bodies)
        )
        file = ("in.jsonl", "\n".join(map(json.dumps, lines)).encode())
        sent = httpx.post(
            f"{self.url}/v1/files", data={"purpose": "batch"}, files={"file": file}
        ).json()
        wishes = {
            "input_file_id": sent.get("id"),
            "endpoint": "/translate",
            "completion_window": "24h",
        }
        state = httpx.post(f"{self.url}/v1/batches", json=wishes).json()
        while state.get("status") == "validating":
            time.sleep(_POLL_S)
            state = self.batch(state["id"])
        if state.get("status") != "in_progress":
            raise BenchError(f"the batch is not being answered: {state}")
        return str(state["id"])

    def batch(self, id: str) -> dict[str, Any]:
        """The server's description of a batch."""
        found: dict[str, Any] = httpx.get(f"{self.url}/v1/batches/{id}").json()
        return found

    def cancel_batch(self, id: str) -> None:
        """End a batch, and wait until it has ended."""
        httpx.post(f"{self.url}/v1/batches/{id}/cancel")
        while self.batch(id)["status"] in ("in_progress", "cancelling"):
            time.sleep(_POLL_S)

    def _end(self) -> None:
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    """Run the server's process: load the bundle and answer on the given socket."""
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
