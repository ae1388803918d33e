"""The BentoML service: starts and ends the models and hands every request to the app.

`bentoml serve` at the repository root finds it through bentofile.yaml.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

# BentoML reports usage to its makers unless this says otherwise before it looks.
os.environ.setdefault("BENTOML_DO_NOT_TRACK", "True")

import bentoml
from bentoml._internal.utils.analytics.usage_stats import do_not_track
from circus.sighandler import SysHandler
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import BundleError, ServingError
from serving.server.check import check, refuse
from serving.server.http.slow_clients import time_connections
from serving.server.worker import SETTINGS, app, registry, start_early

if TYPE_CHECKING:
    from serving.server.models.registry import Registry

# The command line has looked before it imported this module, and keeps what it saw.
do_not_track.cache_clear()

_BENTOML_TIMEOUT_MARGIN_S = 10

logger = logging.getLogger(__name__)

start_early()
time_connections(SETTINGS.client_timeout_s)


class _PublicRoutes:
    """Hands every request to our app and leaves start and end of the server to BentoML.

    An app mounted the usual way comes after BentoML's own /livez and /readyz, and BentoML answers
    for it, in plain text, where it has no route.
    """

    def __init__(self, bentoml_app: ASGIApp) -> None:
        self._bentoml_app = bentoml_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._bentoml_app if scope["type"] == "lifespan" else app()
        await chosen(scope, receive, send)


class _Macaron:
    """Fast translation with batched beam search."""

    @bentoml.on_deployment  # type: ignore[untyped-decorator]
    @staticmethod
    def check() -> None:
        """Refuse to serve where something is bad: once, before any worker starts."""
        try:
            check(SETTINGS)
        except ServingError as error:
            refuse(error)
        _pass_hangups_on()

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Load the models beside the event loop, so that /livez answers meanwhile."""
        from serving.server.http.logs import configure_logs

        configure_logs(SETTINGS)
        _on_termination(asyncio.get_running_loop())
        _on_hangup()
        self._loading = asyncio.create_task(asyncio.to_thread(_load, registry()))
        await asyncio.sleep(0)  # the thread starts, and with it the processes that decode
        app().state.backend.documents.start()
        app().state.backend.batches.start()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Finish the requests that were accepted, once loading has come to its end."""
        await app().state.backend.documents.close()
        await app().state.backend.batches.close()
        await self._loading
        await asyncio.to_thread(registry().close)
        await asyncio.to_thread(app().state.backend.close)


def _load(models: Registry) -> None:
    try:
        models.load()
    except Exception as error:
        logger.critical("the models cannot be loaded", exc_info=True)
        if isinstance(error, BundleError):
            # Its hashes are right, and another worker would fail as this one: the server ends.
            print(f"macaron: error: {error}", file=sys.stderr, flush=True)
            os.kill(os.getppid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    from serving.text.detection import load_detector

    # The first text of which the language is not known waits for this, if it comes at once.
    load_detector()


def _on_termination(loop: asyncio.AbstractEventLoop) -> None:
    """On SIGTERM: report not ready at once, serve until the end of the drain, let the server
    finish, and cancel what is unfinished after the grace period."""
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
    """Make SIGHUP reload the bundles on a thread of its own, while requests go on."""
    if threading.current_thread() is not threading.main_thread():
        return

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=registry().reload, name="reload", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)


def _pass_hangups_on() -> None:
    """Make the process that watches the workers hand SIGHUP to them; it would replace them, and
    whoever asks the new ones before they are ready is refused."""

    def handle_hup(self: SysHandler) -> None:
        for watcher in self.controller.arbiter.iter_watchers():
            for process in watcher.processes.values():
                process.send_signal(signal.SIGHUP)

    SysHandler.handle_hup = handle_hup


MacaronService = bentoml.service(
    name="macaron",
    workers=SETTINGS.workers,
    logging={"access": {"enabled": False}},  # http.access_log writes a line of its own
    # Its labels hold raw paths, so that a scanner fills the memory.
    metrics={"enabled": False},
    # Our own deadlines come first; this one also ends a body that never arrives.
    traffic={"timeout": SETTINGS.max_timeout_s + _BENTOML_TIMEOUT_MARGIN_S},
)(_Macaron)
MacaronService.add_asgi_middleware(_PublicRoutes)
