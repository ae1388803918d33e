"""A process that loads models, as its parent sees it.

A worker of the server may start one ahead, before it has imported what it needs itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from serving.runtime.gpu.cuda_switches import VISIBLE

if TYPE_CHECKING:  # these import modules that a worker starts a process before
    from serving.processes.orders import DropOrder, LoadOrder, ServeOrder
    from serving.runtime.session import DeviceUse

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""
AHEAD = "_MACARON_DECODER_AHEAD"
"""Set in the environment of a worker that is to start one ahead."""
_END_S = 10.0
"""Seconds in which processes must end by themselves."""


class Loader:
    """A process that loads models: `serving.processes.decoder`."""

    def __init__(self, *, forks: bool, gpu: str | None = None) -> None:
        """Start the process. With `forks` its forks decode, otherwise it decodes itself. It sees
        only the `gpu` of that name, or all of the server's."""
        self._socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"{__package__}.decoder",
                    str(other.fileno()),
                    "forks" if forks else "alone",
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                process_group=0,  # a signal to the server's group is for the server
                env=environment() | ({} if gpu is None else {VISIBLE: gpu}),
            )
        self._connection = Connection(os.dup(self._socket.fileno()))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def tell(self, order: LoadOrder | DropOrder | ServeOrder) -> None:
        """Send an order. Call `answer` for its answer. Raises OSError if the process has ended."""
        self._connection.send(order)

    def answer(self) -> DeviceUse | int | None:
        """The answer to the oldest order that has none yet. Raises the error of an order that
        failed, and EOFError or OSError if the process has ended."""
        answer: DeviceUse | int | Exception | None = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def serve(self, models: Iterable[int]) -> dict[int, socket.socket]:
        """Order the process to decode for models; returns this side's end of each connection.
        Raises OSError if the process has ended."""
        from serving.processes.orders import ServeOrder

        pairs = {model: socket.socketpair() for model in models}
        try:
            self.tell(ServeOrder(tuple(pairs)))
            for _, other in pairs.values():
                socket.send_fds(self._socket, [b"-"], [other.fileno()])
        except BaseException:
            for own, _ in pairs.values():
                own.close()
            raise
        finally:
            for _, other in pairs.values():
                other.close()
        return {model: own for model, (own, _) in pairs.items()}

    def leave(self) -> None:
        """Disconnect. The process ends when it has nothing left to decode."""
        self._connection.close()
        self._socket.close()

    def part(self) -> None:
        """`leave`, and remove the process from the system's list when it has ended."""
        self.leave()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def close(self) -> None:
        """End the process and its forks, by force if they do not end in time."""
        self.leave()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


_AHEAD: list[Loader] = []


def start_ahead() -> None:
    """Start a process that forks before it is needed; the first caller of `taken_ahead` gets it."""
    _AHEAD.append(Loader(forks=True))


def taken_ahead() -> Loader | None:
    """The process that was started ahead and that nobody has taken yet."""
    return _AHEAD.pop() if _AHEAD else None


def environment() -> dict[str, str]:
    """The environment of this package's processes: the server's, with the package on the path and
    one thread for NumPy."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
