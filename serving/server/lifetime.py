"""The life of a worker: models are loaded as it starts, and accepted requests are finished as it
ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import TYPE_CHECKING, Any

from serving.errors import BundleError
from serving.server.worker import FAILED, SETTINGS, app, registry

if TYPE_CHECKING:
    from serving.server.models.registry import Registry

logger = logging.getLogger(__name__)


class Lifetime:
    """Loads the models on a separate thread, and closes them at the end."""

    def __init__(self) -> None:
        self._loaded: Future[None] | None = None

    def load(self) -> None:
        """Begin to load the models on another thread, unless that was begun before."""
        if self._loaded is None:
            from serving.server.http.logs import configure_logs

            configure_logs(SETTINGS)
            self._loaded = _on_a_thread(_load, registry())

    async def start(self) -> None:
        """Load the models outside of the event loop, so that /livez answers meanwhile."""
        _on_termination(asyncio.get_running_loop())
        _on_hangup()
        self.load()
        await asyncio.sleep(0)  # the thread starts, and with it the processes that decode
        app().state.backend.documents.start()
        app().state.backend.batches.start()

    async def stop(self) -> None:
        """Finish the accepted requests, once loading has ended."""
        await app().state.backend.documents.close()
        await app().state.backend.batches.close()
        if self._loaded is not None:
            await asyncio.wrap_future(self._loaded)
        await asyncio.to_thread(registry().close)
        await asyncio.to_thread(app().state.backend.close)


def _on_a_thread(call: Callable[[Registry], None], models: Registry) -> Future[None]:
    """Run a call on a thread of its own; the future is done when the call has returned."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            call(models)
        finally:
            done.set_result(None)

    threading.Thread(target=run, name="load", daemon=True).start()
    return done


def _load(models: Registry) -> None:
    try:
        models.load()
    except Exception as error:
        logger.critical("the models cannot be loaded", exc_info=True)
        if isinstance(error, BundleError):
            # Its hashes are right, so another worker would fail like this one: the server ends.
            print(f"macaron: error: {error}", file=sys.stderr, flush=True)
            if FAILED in os.environ:
                with contextlib.suppress(OSError):  # of a server around this one
                    os.write(int(os.environ[FAILED]), b"!")
            os.kill(os.getppid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    from serving.text.detection import load_detector

    # The first text with an unknown language waits for this, if it arrives at once.
    load_detector()


def _on_termination(loop: asyncio.AbstractEventLoop) -> None:
    """Handle SIGTERM: report not ready at once, serve until the end of the drain, let the server
    finish, and cancel unfinished requests after the grace period."""
    if threading.current_thread() is not threading.main_thread():
        return  # a test runs the service in a thread, which gets no signals
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
            registry().drain()
            loop.call_later(SETTINGS.drain_s + SETTINGS.grace_s, registry().abandon)
            if callable(before):
                loop.call_later(SETTINGS.drain_s, before, number, frame)

        signal.signal(number, handle)


def _on_hangup() -> None:
    """Make SIGHUP reload the bundles on a thread of its own, while requests continue."""
    if threading.current_thread() is not threading.main_thread():
        return

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=registry().reload, name="reload", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)
