"""A process that decodes: `python -m serving.translation.decoder_process FD`.

`serving.translation.isolated` starts it.

It loads the model of the first message on the socket, answers on which device, and from then on
tells what happens to the sentences of the orders that come. It ends when its parent has gone.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from serving.errors import ServingError
from serving.runtime.session import DeviceUse
from serving.translation.isolated import LoadOrder, Order
from serving.translation.loading import load_translator
from serving.translation.running import RunningBatches
from serving.translation.translator import Translator


def main() -> None:
    """Do what the parent orders, over the connection it has left open, until that ends."""
    # These are for the server, which lets its requests end first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):  # the parent has gone
        order = connection.recv()
        try:
            engine, device = _load(order)
        except Exception as error:
            connection.send(portable(error))
            return
        connection.send(device)
        serve(engine, connection)


def _load(order: LoadOrder) -> tuple[RunningBatches, DeviceUse]:
    if order.tune:
        translator = load_translator(order.folder, "latency", order.threads, order.limits)
    else:
        translator = Translator(order.folder, threads=order.threads, limits=order.limits)
    translator.warm_up()
    return RunningBatches(translator.texts, translator.steppers), translator.device


def serve(engine: RunningBatches, connection: Connection) -> None:
    """Decode what is ordered until the other end is closed, which may raise OSError."""
    orders = _read(connection)
    while True:
        while not (engine.busy and orders.empty()):
            order = orders.get()
            if order is None:
                return
            engine.cancel(order.cancelled)
            if order.sentences:
                engine.join(order.sentences)
        engine.advance()
        if engine.progress.matters:
            progress = engine.collect()
            progress.failed = [(number, portable(error)) for number, error in progress.failed]
            connection.send(progress)


def _read(connection: Connection) -> queue.SimpleQueue[Order | None]:
    """Orders as they come, and None at their end. They are read at once: a parent that cannot
    send does not read either."""
    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    orders.put(connection.recv())
        finally:
            orders.put(None)

    threading.Thread(target=read, daemon=True).start()
    return orders


def portable(error: Exception) -> Exception:
    """The error with its traceback; one of a library's own class may not survive the way."""
    if not isinstance(error, ServingError):
        error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    error.add_note("".join(traceback.format_tb(error.__traceback__)))
    return error


if __name__ == "__main__":
    main()
