"""The process that watches the workers: BentoML's Circus, without the rest of BentoML.

It binds the address, starts the workers, and replaces those that end. `bentoml serve` does the same
after it has imported what it needs for any service.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from circus.arbiter import Arbiter
from circus.sighandler import SysHandler
from circus.sockets import CircusSocket
from circus.watcher import Watcher

import serving
from serving.errors import ServingError
from serving.processes.loader import AHEAD, environment
from serving.server.check import check, decoded_by_forks, refuse
from serving.server.worker import FAILED, SETTINGS

WORKER = f"{serving.__name__}.worker"
"""The program of a worker."""
_SOCKET = "http"
_BACKLOG = 2048
_CHECK_S = 10
"""Seconds between checks that every worker is alive; the end of a worker is noticed at once."""
_FINISH_S = 86400
"""Seconds that workers have to end; they limit themselves by the grace period."""
_CONTAINERIZED = "BENTOML_CONTAINERIZED"
"""Variable that is set in BentoML's own images, in which the container is replaced rather than a
worker."""


def serve(host: str, port: int, folder: str) -> None:
    """Check the settings and bundles, and serve them with workers, which are imported from a
    folder, until a signal ends them.

    Ends the process with status 1 if something cannot be served, or if a worker finds that a
    bundle cannot be loaded. Raises OSError if the address cannot be bound.
    """
    prepare()
    told, tell = os.pipe()
    os.set_blocking(told, False)
    os.set_inheritable(tell, True)
    os.environ[FAILED] = str(tell)
    _watch(host, port, folder)
    with contextlib.suppress(BlockingIOError):  # nobody has told anything
        if os.read(told, 1):
            raise SystemExit(1)


def _watch(host: str, port: int, folder: str) -> None:
    """Start workers, and replace those that end, until a signal ends them all."""
    watcher = Watcher(
        name="service",
        cmd=sys.executable,
        args=["-m", WORKER, "--fd", f"$(circus.sockets.{_SOCKET})"],
        numprocesses=SETTINGS.workers,
        working_dir=folder,
        copy_env=True,
        stop_children=True,
        use_sockets=True,
        close_child_stdin=True,
        graceful_timeout=_FINISH_S,
        respawn=_CONTAINERIZED not in os.environ,
    )
    arbiter = Arbiter(
        [watcher],
        endpoint="inproc://control",  # nobody else controls it
        pubsub_endpoint="inproc://events",
        check_delay=_CHECK_S,
        sockets=[CircusSocket(name=_SOCKET, host=host, port=port, backlog=_BACKLOG)],
    )
    ended = arbiter.start(lambda _: print(f"listening on http://{host}:{port}", flush=True))
    if (failure := ended.exception()) is not None:
        raise failure


def prepare() -> None:
    """Refuse to serve if a setting or bundle is bad: once, before any worker starts. Then set the
    environment variables that workers read."""
    try:
        found = check(SETTINGS)
        ahead = decoded_by_forks(SETTINGS, found)
    except ServingError as error:
        refuse(error)
    os.environ.update(environment())
    if ahead:
        os.environ[AHEAD] = "1"
    _pass_hangups_on()


def _pass_hangups_on() -> None:
    """Make the process that watches the workers pass SIGHUP on to them. It would otherwise replace
    them, and requests to the new ones before they are ready would be refused."""

    def handle_hup(self: SysHandler) -> None:
        for watcher in self.controller.arbiter.iter_watchers():
            for process in watcher.processes.values():
                process.send_signal(signal.SIGHUP)

    SysHandler.handle_hup = handle_hup
