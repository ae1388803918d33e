"""A process that loads models and decodes with them, or has copies of itself decode: `python -m
serving.processes.decoder FD forks|alone`.

`serving.processes.group` starts it. With `forks` it never decodes except for a warm-up,
and has no threads: copies of it, which share the memory of all loaded models, decode. Otherwise it
decodes itself. It ends when its parent has ended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from serving.bundle.folder import parse_manifest
from serving.processes.loop import DecodingLoop, RunningEngine, portable
from serving.processes.orders import DropOrder, LoadOrder, ServeOrder
from serving.processes.presets import load_translator
from serving.resident import give_back
from serving.runtime.session import DeviceUse
from serving.translation.translator import Translator

if TYPE_CHECKING:
    from serving.encoding.reader import TextReader
    from serving.generation.generator import Generator


def main() -> None:
    """Carry out the parent's orders, which arrive on an inherited connection, until that ends."""
    # These signals are for the server, which lets its requests end first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = _Channel(int(sys.argv[1]))
    if sys.argv[2] == "forks":
        _fork_for(channel)
    else:
        _decode_for(channel)


class _Channel:
    """The connection to the parent, on which file descriptors arrive as well."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._socket = socket.socket(fileno=os.dup(descriptor))

    def receive(self) -> LoadOrder | DropOrder | ServeOrder:
        """The next order; raises EOFError at the end."""
        order: LoadOrder | DropOrder | ServeOrder = self._connection.recv()
        return order

    def connections(self, count: int) -> list[Connection]:
        """The connections whose descriptors follow an order to serve."""
        return [Connection(socket.recv_fds(self._socket, 1, 1)[1][0]) for _ in range(count)]

    def answer(self, answer: DeviceUse | int | Exception | None) -> None:
        """Report the outcome of an order."""
        self._connection.send(answer)

    def close(self) -> None:
        """Close this process's end."""
        self._connection.close()
        self._socket.close()


class _Models:
    """The loaded models, by number."""

    def __init__(self) -> None:
        self._loaded: dict[int, Translator | Generator | TextReader] = {}

    def load(self, order: LoadOrder) -> DeviceUse:
        """Load a model and warm it up. Raises whatever fails."""
        model: Translator | Generator | TextReader
        task = parse_manifest(order.folder).task
        # Imported here, because processes for translation models need neither.
        if task == "generate":
            from serving.generation.generator import Generator

            model = Generator(order.folder, threads=order.threads, limits=order.limits)
        elif task != "translate":
            from serving.encoding.reader import TextReader

            model = TextReader(order.folder, threads=order.threads)
        elif order.tune:
            model = load_translator(order.folder, "latency", order.threads, order.limits)
        else:
            model = Translator(order.folder, threads=order.threads, limits=order.limits)
        model.warm_up()
        self._loaded[order.model] = model
        return model.device

    def drop(self, order: DropOrder) -> None:
        """Unload a model."""
        self._loaded.pop(order.model, None)

    def engine(self, model: int) -> RunningEngine:
        """An engine for a model, without running batches."""
        return self._loaded[model].engine()


def _follow(
    channel: _Channel,
    models: _Models,
    serve: Callable[[ServeOrder, list[Connection]], int],
    *,
    forks: bool,
) -> None:
    """Carry out orders until the parent has ended; `serve` starts a decoder."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            order = channel.receive()
            try:
                answer: DeviceUse | int | Exception | None = None
                if isinstance(order, ServeOrder):
                    with contextlib.ExitStack() as unserved:
                        connections = channel.connections(len(order.models))
                        for connection in connections:
                            unserved.callback(connection.close)
                        answer = serve(order, connections)
                        unserved.pop_all()
                elif isinstance(order, LoadOrder):
                    answer = models.load(order)
                else:
                    models.drop(order)
            except Exception as error:
                answer = portable(error)
            if forks and not isinstance(order, ServeOrder):
                _settle()
            channel.answer(answer)


def _fork_for(channel: _Channel) -> None:
    """Load models, and let copies of this process decode with them. Returns when the parent has
    ended, after which the last copy ends."""
    models = _Models()

    def serve(order: ServeOrder, connections: list[Connection]) -> int:
        child = os.fork()
        if not child:
            channel.close()
            _decode_as_copy(models, order, connections)
        for connection in connections:
            connection.close()
        return child

    _follow(channel, models, serve, forks=True)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # waits for all: with SIGCHLD ignored it returns when none is left


def _settle() -> None:
    """Keep the garbage collectors of all copies from writing to the present objects, which would
    give each copy its own memory for them."""
    gc.unfreeze()
    gc.collect()
    give_back()
    gc.freeze()
    # Copies that have ended leave nothing behind. Not before the first load, which may compile.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _decode_as_copy(models: _Models, order: ServeOrder, connections: list[Connection]) -> None:
    """Decode as a copy, and never return to the original's code."""
    status = 1
    try:
        engines = map(models.engine, order.models)
        DecodingLoop(zip(engines, connections, strict=True)).run()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _decode_for(channel: _Channel) -> None:
    """Load models while decoding, and decode with them. Returns when the parent has ended; ends
    the process at once if its GPU is lost, so that the parent starts another."""
    models, loop = _Models(), DecodingLoop(lasting=True)

    def serve(order: ServeOrder, connections: list[Connection]) -> int:
        for model, connection in zip(order.models, connections, strict=True):
            loop.add(models.engine(model), connection)
        return os.getpid()

    def follow() -> None:
        try:
            _follow(channel, models, serve, forks=False)
        finally:
            loop.end()

    threading.Thread(target=follow, daemon=True).start()
    try:
        loop.run()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # without the libraries' own ends, which may wait for the GPU


if __name__ == "__main__":
    main()
