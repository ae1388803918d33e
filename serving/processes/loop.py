"""The running batches of several models in one process, which take turns step by step."""

from __future__ import annotations

import queue
import selectors
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Protocol

from serving.errors import DeviceLostError, ServingError
from serving.processes.orders import Order
from serving.processes.turns import FairTurns
from serving.queue.engine import Progress


class RunningEngine(Protocol):
    """The running batches of a model: an engine whose steps and reports are apart."""

    @property
    def busy(self) -> bool: ...

    @property
    def progress(self) -> Progress[Any, Any]: ...

    def join(self, tasks: Mapping[int, Any]) -> None: ...

    def cancel(self, numbers: Iterable[int]) -> None: ...

    def advance(self) -> None: ...

    def collect(self) -> Progress[Any, Any]: ...

    def restart(self) -> None: ...


class DecodingLoop:
    """Decodes what arrives on connections, one connection for each model."""

    def __init__(
        self, served: Iterable[tuple[RunningEngine, Connection]] = (), *, lasting: bool = False
    ) -> None:
        """Create a loop that ends when the other ends of all connections are closed. A `lasting`
        one continues until `end`, and may be given further connections."""
        self._lasting = lasting
        self._places: set[_Place] = set()
        self._inbox: queue.SimpleQueue[tuple[_Place, Order | None] | None] = queue.SimpleQueue()
        """Orders as they arrive; None at the end of those of a place, or of all."""
        self._turns: FairTurns[_Place] = FairTurns()
        self._selector = selectors.DefaultSelector()
        threading.Thread(target=self._read, daemon=True).start()
        for engine, connection in served:
            self.add(engine, connection)

    def add(self, engine: RunningEngine, connection: Connection) -> None:
        """Decode for one more model. Any thread may call this if the loop is a lasting one."""
        place = _Place(engine, connection)
        self._places.add(place)
        self._selector.register(connection, selectors.EVENT_READ, place)

    def end(self) -> None:
        """Let `run` return; any thread may call it."""
        self._inbox.put(None)

    def run(self) -> None:
        """Decode until the end. Raises DeviceLostError if the GPU is lost, for which the process
        must end."""
        while self._places or self._lasting:
            busy = [place for place in list(self._places) if place.busy]  # others may come
            if not busy or not self._inbox.empty():
                order = self._inbox.get()
                if order is None:
                    return
                self._take(*order)
                continue
            place = self._turns.choose(busy)
            begin = time.monotonic()
            try:
                place.turn()
            except OSError:  # nobody reads its results
                self._leave(place)
            else:
                self._turns.charge(place, time.monotonic() - begin)

    def _take(self, place: _Place, order: Order | None) -> None:
        if order is None:
            self._leave(place)
        elif place in self._places:
            if not place.busy:
                self._turns.begin(place)
            place.orders.append(order)

    def _leave(self, place: _Place) -> None:
        self._places.discard(place)
        self._turns.forget(place)
        place.engine.restart()  # which frees the memory of its batches

    def _read(self) -> None:
        """Read orders at once, on a thread of its own: a server that cannot send does not read
        either."""
        while True:
            for key, _ in self._selector.select():
                order: Order | None = None
                try:
                    order = key.data.connection.recv()
                except (EOFError, OSError):
                    self._selector.unregister(key.fileobj)
                self._inbox.put((key.data, order))


class _Place:
    """A model's batches, its connection, and the orders since its last turn."""

    def __init__(self, engine: RunningEngine, connection: Connection) -> None:
        self.engine, self.connection = engine, connection
        self.orders: deque[Order] = deque()

    @property
    def busy(self) -> bool:
        """Whether it needs a turn."""
        return bool(self.orders) or self.engine.busy

    def turn(self) -> None:
        """Carry out the orders, go on by a step or several, and report. Raises OSError if the other
        end is closed, and DeviceLostError."""
        engine = self.engine
        while self.orders:
            order = self.orders.popleft()
            engine.cancel(order.cancelled)
            if order.tasks:
                engine.join(order.tasks)
        try:
            engine.advance()
        except DeviceLostError:
            raise
        except Exception as error:  # the loop and other models must outlive any failure
            engine.restart()
            self.connection.send(portable(error))
            return
        if engine.progress.matters:
            progress = engine.collect()
            progress.check_device()
            progress.failed = [(number, portable(error)) for number, error in progress.failed]
            self.connection.send(progress)


def portable(error: Exception) -> Exception:
    """The error with its traceback in a form that can be pickled; an error of a library's own class
    may not survive that."""
    if not isinstance(error, ServingError):
        error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    error.add_note("".join(traceback.format_tb(error.__traceback__)))
    return error
