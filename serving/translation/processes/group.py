"""Processes that decode, each for every model: the memory of what is loaded is theirs together."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from serving.errors import BundleError
from serving.queue.limits import BatchLimits
from serving.resident import proportional_bytes
from serving.runtime.gpu.cuda_switches import VISIBLE
from serving.runtime.session import DeviceUse
from serving.search.sentence import Sentence
from serving.translation.processes.orders import DropOrder, LoadOrder, Order, ServeOrder
from serving.translation.running import SentenceProgress

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""
_END_S = 10.0
"""Seconds that processes have to end by themselves."""


class ProcessLink:
    """A model's connection to one decoding process."""

    def __init__(self, own: socket.socket, pid: int, loader: Loader | None = None) -> None:
        """`loader` is closed with it."""
        self.pid = pid
        self.sentences: dict[int, Sentence] = {}
        """What the process decodes, by number."""
        self._connection = Connection(own.detach())
        self._poll = select.poll()
        self._poll.register(self.fileno(), 0)  # that the other end is closed is told in any case
        self._loader = loader
        self._lock = threading.Lock()
        self._retired = self._closed = self._ended = False

    def fileno(self) -> int:
        """The descriptor that is readable when there is something to receive."""
        return self._connection.fileno()

    @property
    def ended(self) -> bool:
        """Whether the process has."""
        with self._lock:
            if self._ended or self._closed:
                return self._ended
            return bool(self._poll.poll(0))

    def send(self, sentences: Mapping[int, Sentence]) -> bool:
        """Have sentences of one group decoded; False where the link is retired."""
        with self._lock:
            if self._retired:
                return False
            self.sentences.update(sentences)
        self._tell(Order(sentences=sentences))
        return True

    def cancel(self, numbers: Iterable[int]) -> None:
        """Give up those of the sentences that are decoded here."""
        own = tuple(number for number in numbers if number in self.sentences)
        if own:
            self._tell(Order(cancelled=own))
            self._forget(own)

    def receive(self) -> SentenceProgress:
        """What the process tells next; raises EOFError or OSError where it has ended."""
        try:
            progress: SentenceProgress = self._connection.recv()
        except (EOFError, OSError):
            self._ended = True
            raise
        self._forget(number for number, _ in (*progress.outcomes, *progress.failed))
        return progress

    def retire(self) -> None:
        """Take no more, and close when all is done."""
        with self._lock:
            self._retired = True
            self._close_idle()

    def close(self) -> None:
        """Give everything up."""
        with self._lock:
            self.sentences.clear()
            self._retired = True
            self._close_idle()

    def _tell(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # the process has ended, as who receives will find
            self._connection.send(order)

    def _forget(self, numbers: Iterable[int]) -> None:
        with self._lock:
            for number in numbers:
                self.sentences.pop(number, None)
            self._close_idle()

    def _close_idle(self) -> None:
        if self._retired and not self.sentences and not self._closed:
            self._closed = True
            self._connection.close()
            if self._loader is not None:
                self._loader.part()


class Loader:
    """A process that loads models, of the kind of `serving.translation.processes.decoder`."""

    def __init__(self, *, forks: bool, gpu: str | None = None) -> None:
        """Start it. With `forks` its copies decode, else it does so itself. It sees the `gpu` of
        that name alone, or all of the server's."""
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
        """The id that the system gave the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has."""
        return self._process.poll() is not None

    def tell(self, order: LoadOrder | DropOrder | ServeOrder) -> None:
        """Give an order, the answer to which is then to be asked for; raises OSError where the
        process has ended."""
        self._connection.send(order)

    def answer(self) -> DeviceUse | int | None:
        """What has come of the oldest order without answer; raises what it failed with, or EOFError
        or OSError where the process has ended."""
        answer: DeviceUse | int | Exception | None = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def serve(self, models: Iterable[int]) -> dict[int, socket.socket]:
        """Order that models be decoded for, on connections whose own ends are returned; raises
        OSError where the process has ended."""
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
        """Let it end with what decodes there."""
        self._connection.close()
        self._socket.close()

    def part(self) -> None:
        """`leave`, and have it gone from the system's list of processes when it has ended."""
        self.leave()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def close(self) -> None:
        """End it and its copies, by force where they do not end by themselves in time."""
        self.leave()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class ProcessGroup:
    """As many decoding processes as batches of a model are decoded at once.

    With forks, one process loads the models and each that decodes is a copy of it, so that all
    share their memory and one that has died is replaced at once; it must have no threads, nor may
    sessions have any. Else each loads them for itself, for the GPU of its own where there are
    several; one that cannot be used any more costs the others nothing. Processes start when they
    are needed and end with the last model.
    """

    def __init__(self, size: int, *, forks: bool, gpus: Sequence[str] = ()) -> None:
        """`gpus` are those of the processes, which then do not fork, as CUDA names them."""
        self.size = size
        self._forks, self._gpus = forks, gpus
        self._numbers = itertools.count()
        self._orders: dict[int, LoadOrder] = {}
        """By which the models were loaded."""
        self._engines: dict[int, int] = {}
        """Engines of each model that are open; none is counted before the first."""
        self._loaders: dict[int, Loader] = {}
        """Processes that load, by place; of those that fork there is one."""
        self._links: list[dict[int, ProcessLink]] = [{} for _ in range(size)]
        """Of each process, by model: dictionaries that never change, but are replaced."""
        self._forgotten: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start the processes that load models, so that the first is loaded sooner."""
        with self._lock:
            self._living()

    def load(
        self,
        folder: Path,
        *,
        threads: int = 1,
        tune: bool = False,
        limits: BatchLimits | None = None,
    ) -> tuple[int, DeviceUse]:
        """Load a bundle; returns the number of the model and what it runs on.

        Raises BundleError where it cannot be loaded.
        """
        order = LoadOrder(next(self._numbers), folder.resolve(), threads, tune, limits)
        with self._lock:
            self._drop_forgotten()
            try:
                device = self._load(self._living(), order)
            except (EOFError, OSError) as lost:
                raise BundleError(f"{folder}: the decoding process ended at once") from lost
            self._orders[order.model] = order
        if self._gpus:
            device = replace(device, reason=f"{device.reason}, each of {self.size} GPUs")
        return order.model, device

    def forget(self, model: int) -> None:
        """Drop a model, with the next that is loaded, unless engines of it were opened; any thread
        may call it at any time."""
        self._forgotten.put(model)

    def open(self, model: int, place: int) -> None:
        """Begin to decode for a model in the process of that number."""
        with self._lock:
            self._engines[model] = self._engines.get(model, 0) + 1
            self.link(model, place)

    def leave(self, model: int) -> None:
        """Take one `open` back; a model that nobody decodes any more is dropped."""
        with self._lock:
            self._engines[model] -= 1
            if not self._engines[model]:
                self._drop(model)

    def link(self, model: int, place: int) -> ProcessLink:
        """The connection of a model to the process of that number, started where there is none;
        raises whatever that does."""
        link = self._links[place].get(model)
        if link is None:
            with self._lock:
                if model not in self._links[place]:
                    self._renew(place)
                link = self._links[place][model]
        return link

    def apart(self, model: int, place: int) -> ProcessLink:
        """A connection to a fresh process that decodes for nobody else and ends with it, in the
        stead of the process of that number: on another GPU, where there is one."""
        with self._lock:
            if self._forks:
                return self._served(self._loader(0), [model])[model]
            loader = Loader(forks=False, gpu=self._gpu(place + 1))
            loader.tell(self._orders[model])
            own = loader.serve([model])[model]
            return ProcessLink(own, loader.pid, loader)  # which is loaded when it is needed

    def revive(self, place: int) -> None:
        """Start a process in the place of one that has ended; raises whatever that does."""
        with self._lock:
            if any(link.ended for link in self._links[place].values()):
                self._renew(place)

    def company(self, model: int, place: int) -> int:
        """Sentences that a process decodes for other models."""
        links = self._links[place]
        return sum(len(link.sentences) for other, link in links.items() if other != model)

    @property
    def held_bytes(self) -> int:
        """Memory of all processes, what they share counted once; 0 where the system does not
        tell."""
        return sum(map(proportional_bytes, self.loader_pids | self.decoder_pids))

    @property
    def loader_pids(self) -> set[int]:
        """Ids of the processes that load models."""
        return {loader.pid for loader in list(self._loaders.values())}

    @property
    def decoder_pids(self) -> set[int]:
        """Ids of the processes that decode, which without forks are those that load."""
        return {link.pid for links in list(self._links) for link in links.values()}

    def close(self) -> None:
        """End all processes, whatever they do."""
        with self._lock:
            links = [link for links in self._links for link in links.values()]
            self._links = [{} for _ in range(self.size)]
            loaders, self._loaders = self._loaders, {}
            self._orders.clear()
        for link in links:
            link.retire()
        for loader in loaders.values():
            loader.close()

    def _living(self) -> list[Loader]:
        """All processes that load."""
        return [self._loader(place) for place in range(1 if self._forks else self.size)]

    def _loader(self, place: int) -> Loader:
        """The process of a place that loads, started anew, with what is loaded, where it has ended;
        raises whatever that does."""
        loader = self._loaders.get(place)
        if loader is not None and loader.ended:
            loader.close()
            del self._loaders[place]
            loader = None
        if loader is None:
            loader = Loader(forks=self._forks, gpu=self._gpu(place))
            try:
                for order in self._orders.values():
                    self._load([loader], order)
            except BaseException:
                loader.close()
                raise
            self._loaders[place] = loader
        return loader

    def _gpu(self, place: int) -> str | None:
        return self._gpus[place % len(self._gpus)] if self._gpus else None

    def _load(self, loaders: Iterable[Loader], order: LoadOrder) -> DeviceUse:
        for loader in loaders:
            loader.tell(order)
        failure: Exception | None = None
        device: DeviceUse | int | None = None
        for loader in loaders:
            try:
                device = loader.answer()
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
        assert isinstance(device, DeviceUse)
        return device

    def _served(self, loader: Loader, models: Iterable[int]) -> dict[int, ProcessLink]:
        own = loader.serve(models)
        try:
            pid = loader.answer()
        except BaseException:
            for each in own.values():
                each.close()
            raise
        assert isinstance(pid, int)
        return {model: ProcessLink(each, pid) for model, each in own.items()}

    def _renew(self, place: int) -> None:
        """Have a process decode for all models that are loaded: another one, or the same where it
        loads for itself and lives."""
        before = self._links[place]
        if self._forks:
            self._links[place] = self._served(self._loader(0), self._orders)
        else:
            kept = {model: link for model, link in before.items() if not link.ended}
            missing = [model for model in self._orders if model not in kept]
            self._links[place] = kept | self._served(self._loader(place), missing)
        for model, link in before.items():
            if self._links[place].get(model) is not link:
                link.retire()

    def _drop(self, model: int) -> None:
        del self._orders[model], self._engines[model]
        if not self._orders:
            self.close()
            return
        for place, links in enumerate(self._links):
            self._links[place] = {other: link for other, link in links.items() if other != model}
            if model in links:
                links[model].retire()
        for loader in self._loaders.values():
            with contextlib.suppress(EOFError, OSError):
                loader.tell(DropOrder(model))
                loader.answer()
        if self._forks:  # copies hold its memory, too
            for place, links in enumerate(self._links):
                if links:
                    self._renew(place)

    def _drop_forgotten(self) -> None:
        while not self._forgotten.empty():
            model = self._forgotten.get()
            if model in self._orders and model not in self._engines:
                self._engines[model] = 0
                self._drop(model)


def environment() -> dict[str, str]:
    """Of processes of this package: the server's, with a place to find the package, and without
    threads for NumPy."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
