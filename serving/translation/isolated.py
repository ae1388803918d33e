"""A translation model whose decoding runs in processes of their own.

Threads of one process wait for each other's Python; the server's event loop is one of them.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.errors import BundleError, DecoderLostError
from serving.queue.engine import Progress
from serving.queue.limits import BatchLimits
from serving.resident import resident_bytes
from serving.runtime.session import ON_CPU, DeviceUse
from serving.search.options import SearchOptions
from serving.search.sentence import Sentence
from serving.translation.running import SentenceProgress
from serving.translation.texts import load_texts

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""
_POLL_MS = 50
"""Milliseconds between looks whether anyone still waits for what is decoded."""
_END_S = 10.0
"""Seconds that a process has to end by itself."""


@dataclass(frozen=True)
class LoadOrder:
    """The first message to a decoding process: what it is to load."""

    folder: Path
    threads: int
    tune: bool
    """Whether to find out how many of the threads are fastest for a short text."""
    limits: BatchLimits | None = None


@dataclass(frozen=True)
class Order:
    """What a decoding process is told after that: to give up some sentences, and to take others."""

    cancelled: tuple[int, ...] = ()
    sentences: Mapping[int, Sentence] | None = None


class IsolatedEngine:
    """The `Engine` in a process of its own: `serving.translation.decoder_process`."""

    def __init__(self, order: LoadOrder) -> None:
        """Start the process; `wait` until it is ready."""
        self._load_order = order
        self.device = ON_CPU
        """What the model runs on, known once it is loaded."""
        self._woken, self._wakes = os.pipe()
        weakref.finalize(self, _close, self._woken, self._wakes)
        self._waking = False
        self._start()

    @property
    def lost(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """The id that the system gave the decoding process; another after a restart."""
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """Memory of the process; 0 where the system does not tell."""
        return resident_bytes(self.pid)

    def wait(self) -> None:
        """Wait until the model is loaded; raises BundleError where it cannot be."""
        try:
            answer: DeviceUse | Exception = self._connection.recv()
        except (EOFError, OSError) as lost:
            raise BundleError(
                f"{self._load_order.folder}: the decoding process ended at once"
            ) from lost
        if isinstance(answer, Exception):
            raise answer
        self.device = answer

    def join(self, tasks: Mapping[int, Sentence]) -> None:
        """Have sentences of one group decoded."""
        self._send(Order(sentences=tasks))

    def cancel(self, numbers: Iterable[int]) -> None:
        """Tell the process to drop these sentences; it frees their rows before its next step."""
        self._send(Order(cancelled=tuple(numbers)))

    def step(self) -> SentenceProgress:
        """Wait a moment for what happens next; raises DecoderLostError where the process has
        ended."""
        try:
            told = self._connection.fileno()
            ready = {descriptor for descriptor, _ in self._poll.poll(_POLL_MS)}
            if self._woken in ready:
                os.read(self._woken, 1)
                self._waking = False
            progress = self._connection.recv() if told in ready else Progress()
        except (EOFError, OSError) as error:
            raise DecoderLostError(
                "the process that decoded the text has ended; try again"
            ) from error
        assert isinstance(progress, Progress)
        return progress

    def wake(self) -> None:
        """Let `step` return; called by one thread at a time."""
        if not self._waking:
            self._waking = True
            os.write(self._wakes, b"w")

    def restart(self) -> None:
        """Start another process in the place of this one, and wait for it."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._start()
        self.wait()

    def close(self) -> None:
        """End the process, by force where it does not end by itself in time."""
        self._connection.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        own, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.decoder_process", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                process_group=0,  # a signal to the server's group is for the server
                env=_environment(),
            )
        self._connection = Connection(own.detach())
        self._poll = select.poll()
        for descriptor in (self._connection.fileno(), self._woken):
            self._poll.register(descriptor, select.POLLIN)
        self._connection.send(self._load_order)

    def _send(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # the process has ended, as `step` will find
            self._connection.send(order)


class IsolatedTranslator:
    """A translation bundle that is loaded by decoding processes, one for each worker."""

    def __init__(
        self,
        folder: Path,
        *,
        threads: int = 1,
        workers: int = 1,
        limits: BatchLimits | None = None,
        tune: bool = False,
    ) -> None:
        """Start the processes; raises BundleError where they cannot load the bundle.

        Each has `threads`, or, to `tune`, as many of them as it finds to be fastest for a short
        text. All together keep to the memory of `limits`.
        """
        self.texts, self.workers = load_texts(folder, workers, limits), workers
        order = LoadOrder(folder.resolve(), threads, tune, limits)
        self._engines: list[IsolatedEngine] = []
        try:
            for _ in range(workers):
                self._engines.append(IsolatedEngine(order))
            for engine in self._engines:
                engine.wait()
        except BaseException:
            for engine in self._engines:
                engine.close()
            raise
        self.device = self._engines[0].device
        """What the processes decode on."""

    @property
    def manifest(self) -> Manifest:
        """What the bundle tells of itself."""
        return self.texts.manifest

    @property
    def default_options(self) -> SearchOptions:
        """The bundle's own search options."""
        return self.texts.default_options

    def engine(self) -> IsolatedEngine:
        """One of the processes, for the caller to close."""
        return self._engines.pop()

    def warm_up(self) -> None:
        """The processes have done so."""


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    """The server's, with a place to find this package, and without threads for NumPy."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
