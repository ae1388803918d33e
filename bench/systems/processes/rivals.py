"""The parent's side of a rival: a product in a separate process and environment.

The process answers with `bench.systems.rivals`, which is run as a folder: nothing of this project
is imported in a rival's environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine.memory import peak_rss_of
from bench.systems.processes.conversation import Conversation

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""
_ANSWERING = Path(__file__).resolve().parents[1] / "rivals"
ENGINE = "this engine"
"""The product that runs in this project's own environment."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM")
"""The variables that set the number of threads of libraries without an option for it."""


@dataclass(frozen=True)
class Rival:
    """The system of a row, and how its process is started."""

    name: str
    """Name of the rival in the table."""
    product: str
    """The product whose environment the rival needs, as the user names it."""
    module: str
    """The rival's module in `bench.systems.rivals`."""
    kind: str
    """A class of the module."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RivalAnswer:
    """The result of a rival's method, and the time that it took."""

    result: Any
    seconds: float
    cpu_seconds: float
    """Processor time of all threads of the process."""


class RivalProcess:
    """A loaded rival."""

    def __init__(self, rival: Rival, python: Path | None, threads: int) -> None:
        """Start the process with a Python, by default this one, and wait until it has loaded.

        Raises BenchError with the reason if it cannot: a missing package, or a file that the
        product does not read.
        """
        self.rival = rival
        if python is not None and not os.access(python, os.X_OK):
            raise BenchError(f"{rival.name}: there is no program {python}")
        env = {**os.environ, **_threads(threads)}
        if rival.product == ENGINE:
            env["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])
            )
        command = [str(python or sys.executable), str(_ANSWERING)]
        self._conversation = Conversation(rival.name, command, env)
        asked = {"module": rival.module, "kind": rival.kind, "arguments": dict(rival.arguments)}
        try:
            self.version: str = self._conversation.ask(asked)["version"]
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **arguments: Any) -> RivalAnswer:
        """Call a method of the rival. Raises BenchError if it fails."""
        return RivalAnswer(**self._conversation.ask({"do": do, **arguments}))

    @property
    def peak_memory(self) -> int:
        """Peak memory of the process in bytes so far."""
        return peak_rss_of(self._conversation.pid)

    def close(self) -> None:
        """End the process."""
        self._conversation.close()


@contextmanager
def started(rival: Rival, python: Path | None, threads: int) -> Iterator[RivalProcess]:
    """A rival for as long as the block."""
    process = RivalProcess(rival, python, threads)
    try:
        yield process
    finally:
        process.close()


@contextmanager
def all_started(
    rivals: Sequence[Rival], pythons: Mapping[str, Path], threads: int, left_out: dict[str, str]
) -> Iterator[dict[str, RivalProcess]]:
    """The rivals that can be loaded, by name; `left_out` gets the reasons of the others.

    `pythons` are the interpreters of the environments, by product. Raises BenchError if this engine
    itself cannot be loaded.
    """
    found: dict[str, RivalProcess] = {}
    try:
        for rival in rivals:
            python = None if rival.product == ENGINE else pythons.get(rival.product)
            try:
                found[rival.name] = RivalProcess(rival, python, threads)
            except BenchError as error:
                if rival.product == ENGINE:
                    raise
                left_out[rival.name] = str(error).removeprefix(f"{rival.name}: ")
        yield found
    finally:
        for process in found.values():
            process.close()


def _threads(threads: int) -> dict[str, str]:
    values = (str(threads), str(threads), "false" if threads == 1 else "true")
    return dict(zip(THREAD_VARIABLES, values, strict=True))
