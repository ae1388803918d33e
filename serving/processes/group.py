"""Decoding processes, each for every model. They share the memory of the models."""

from __future__ import annotations

import contextlib
import itertools
import queue
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from serving.errors import BundleError, DecoderLostError
from serving.processes.loader import Loader, taken_ahead
from serving.processes.orders import DropOrder, LoadOrder, Order
from serving.queue.engine import Progress
from serving.queue.limits import BatchLimits
from serving.resident import proportional_bytes
from serving.runtime.session import DeviceUse


class ProcessLink:
    """A model's connection to one decoding process."""

    def __init__(self, own: socket.socket, pid: int, loader: Loader | None = None) -> None:
        """Take over the socket `own`. Closing the link closes `loader`, too."""
        self.pid = pid
        self.tasks: dict[int, Any] = {}
        """What the process decodes, by number."""
        self._connection = Connection(own.detach())
        self._poll = select.poll()
        self._poll.register(self.fileno(), 0)  # a closed other end is reported in any case
        self._loader = loader
        self._lock = threading.Lock()
        self._retired = self._closed = self._ended = False

    def fileno(self) -> int:
        """The descriptor to wait on: it is readable when there is something to receive."""
        return self._connection.fileno()

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        with self._lock:
            if self._ended or self._closed:
                return self._ended
            return bool(self._poll.poll(0))

    def send(self, tasks: Mapping[int, Any]) -> bool:
        """Have tasks of one group decoded; returns False if the link is retired."""
        with self._lock:
            if self._retired:
                return False
            self.tasks.update(tasks)
        self._tell(Order(tasks=tasks))
        return True

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel those of the tasks that this process decodes."""
        own = tuple(number for number in numbers if number in self.tasks)
        if own:
            self._tell(Order(cancelled=own))
            self._forget(own)

    def receive(self) -> Progress[Any, Any]:
        """The next message of the process. Raises EOFError or OSError if it has ended, and the
        error with which all its tasks failed."""
        try:
            progress: Progress[Any, Any] | Exception = self._connection.recv()
        except (EOFError, OSError):
            self._ended = True
            raise
        if isinstance(progress, Exception):
            raise progress
        self._forget(number for number, _ in (*progress.outcomes, *progress.failed))
        return progress

    def refusal(self) -> Exception | None:
        """What kept a process that loads for this link alone from loading the model, if anything
        did. The process must have ended, or have closed its end."""
        if self._loader is None:
            return None
        try:
            self._loader.answer()
        except (EOFError, OSError):
            return DecoderLostError("a process ended while it loaded the model")
        except Exception as error:
            return error
        return None

    def retire(self) -> None:
        """Accept no more tasks, and close when all are done."""
        with self._lock:
            self._retired = True
            self._close_idle()

    def close(self) -> None:
        """Cancel everything and close."""
        with self._lock:
            self.tasks.clear()
            self._retired = True
            self._close_idle()

    def _tell(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # the process has ended, which `receive` will find
            self._connection.send(order)

    def _forget(self, numbers: Iterable[int]) -> None:
        with self._lock:
            for number in numbers:
                self.tasks.pop(number, None)
            self._close_idle()

    def _close_idle(self) -> None:
        if self._retired and not self.tasks and not self._closed:
            self._closed = True
            self._connection.close()
            if self._loader is not None:
                self._loader.part()


class ProcessGroup:
    """The decoding processes, one for each batch that a model decodes at once.

    With forks, one process loads the models, and each decoding process is a fork of it. They share
    its memory, and one that dies is replaced at once. The loading process must have no threads, and
    neither may its sessions. Without forks, each process loads the models itself, for a GPU of its
    own if there are several; one that fails costs the others nothing. Processes start when they are
    needed and end with the last model.
    """

    def __init__(self, size: int, *, forks: bool, gpus: Sequence[str] = ()) -> None:
        """`gpus` are those of the processes, which then do not fork, as CUDA names them."""
        self.size = size
        self.devices = max(1, len(gpus))
        """Number of devices that the processes are spread over."""
        self._forks, self._gpus = forks, gpus
        self._numbers = itertools.count()
        self._orders: dict[int, LoadOrder] = {}
        """The order that loaded each model."""
        self._engines: dict[int, int] = {}
        """Number of open engines of each model; a model is listed from its first engine on."""
        self._loaders: dict[int, Loader] = {}
        """Processes that load models, by place; with forks there is only one."""
        self._links: list[dict[int, ProcessLink]] = [{} for _ in range(size)]
        """The links of each process, by model. A dictionary never changes; it is replaced."""
        self._forgotten: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start the loading processes now, so that the first model loads sooner."""
        with self._lock:
            self._living()

    def load(
        self,
        folder: Path,
        *,
        threads: int = 1,
        tune: bool = False,
        limits: BatchLimits | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[int, DeviceUse]:
        """Load a bundle; returns the model's number and the device it runs on.

        `meanwhile` is called while the processes load it; what it raises drops the model. Raises
        BundleError if it cannot be loaded.
        """
        order = LoadOrder(next(self._numbers), folder.resolve(), threads, tune, limits)
        with self._lock:
            self._drop_forgotten()
            failure: Exception | None = None
            try:
                loaders = self._living()
                self._tell(loaders, order)
                try:
                    meanwhile()
                except Exception as error:
                    failure = error
                device = self._loaded(loaders)
                if failure is not None:
                    self._forget_in(loaders, order.model)
            except (EOFError, OSError) as lost:
                raise BundleError(f"{folder}: the decoding process ended at once") from lost
            if failure is not None:
                raise failure
            self._orders[order.model] = order
        if self._gpus:
            reason = f"{device.reason}, each of {self.devices} GPUs"
            device = replace(device, reason=reason, count=self.devices)
        return order.model, device

    def forget(self, model: int) -> None:
        """Drop a model that never had an engine, when the next model loads. Any thread may call
        this at any time."""
        self._forgotten.put(model)

    def open(self, model: int, place: int) -> None:
        """Begin to decode for a model in process number `place`."""
        with self._lock:
            self._engines[model] = self._engines.get(model, 0) + 1
            self.link(model, place)

    def leave(self, model: int) -> None:
        """Undo one `open`. A model without open engines is dropped."""
        with self._lock:
            self._engines[model] -= 1
            if not self._engines[model]:
                self._drop(model)

    def link(self, model: int, place: int) -> ProcessLink:
        """The link of a model to process number `place`. Starts the process if there is none, and
        raises what that raises."""
        link = self._links[place].get(model)
        if link is None:
            with self._lock:
                if model not in self._links[place]:
                    self._renew(place)
                link = self._links[place][model]
        return link

    def apart(self, model: int, place: int) -> ProcessLink:
        """A connection to a fresh process that decodes for no other model and ends with the
        connection. It stands in for process number `place`, on another GPU if there is one. Without
        forks it may find that it cannot load the model, and ends (`ProcessLink.refusal`)."""
        with self._lock:
            if self._forks:
                return self._served(self._loader(0), [model])[model]
            loader = Loader(forks=False, gpu=self._gpu(place + 1))
            loader.tell(self._orders[model])
            own = loader.serve([model])[model]
            return ProcessLink(own, loader.pid, loader)  # it loads when the link is used

    def revive(self, place: int) -> None:
        """Replace a process that has ended. Raises whatever starting one raises."""
        with self._lock:
            if any(link.ended for link in self._links[place].values()):
                self._renew(place)

    def company(self, model: int, place: int) -> int:
        """The number of tasks that a process decodes for other models."""
        links = self._links[place]
        return sum(len(link.tasks) for other, link in links.items() if other != model)

    @property
    def held_bytes(self) -> int:
        """Memory of all processes in bytes, with shared memory counted once; 0 if the system does
        not report it."""
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
        """End all processes, whatever they are doing."""
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
        """All loading processes."""
        return [self._loader(place) for place in range(1 if self._forks else self.size)]

    def _loader(self, place: int) -> Loader:
        """The loading process of a place. If it has ended, it is started again with the loaded
        models; raises whatever fails."""
        loader = self._loaders.get(place)
        if loader is not None and loader.ended:
            loader.close()
            del self._loaders[place]
            loader = None
        if loader is None:
            loader = taken_ahead() if self._forks else None
            loader = loader or Loader(forks=self._forks, gpu=self._gpu(place))
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

    def _load(self, loaders: Sequence[Loader], order: LoadOrder) -> DeviceUse:
        self._tell(loaders, order)
        return self._loaded(loaders)

    @staticmethod
    def _tell(loaders: Sequence[Loader], order: LoadOrder) -> None:
        for loader in loaders:
            loader.tell(order)

    @staticmethod
    def _loaded(loaders: Sequence[Loader]) -> DeviceUse:
        """Wait until a bundle is loaded. Raises the error that made it fail."""
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
        """Give `place` a process that decodes for all loaded models: a new one, or the same if it
        loads for itself and is alive."""
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
        self._forget_in(self._loaders.values(), model)
        if self._forks:  # the forks hold its memory, too
            for place, links in enumerate(self._links):
                if links:
                    self._renew(place)

    @staticmethod
    def _forget_in(loaders: Iterable[Loader], model: int) -> None:
        for loader in loaders:
            with contextlib.suppress(EOFError, OSError):
                loader.tell(DropOrder(model))
                loader.answer()

    def _drop_forgotten(self) -> None:
        while not self._forgotten.empty():
            model = self._forgotten.get()
            if model in self._orders and model not in self._engines:
                self._engines[model] = 0
                self._drop(model)
