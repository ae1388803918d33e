"""Lines of JSON with a process that lives as long as a run: the parent's end."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import BenchError


class Conversation:
    """A started process, which answers each line on its stdin with one on its stdout."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises BenchError, with the name, for an answer that is an
        error, and for a process that ends instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            raise BenchError(
                f"the process of {self._name} ended with status {status}; see the messages above, "
                "and whether memory ran out"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{self._name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process; unanswered requests are lost."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # lines that a dead process did not read
            self._process.stdin.close()
        self._process.stdout.close()
