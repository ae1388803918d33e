"""Work that requests leave to a separate thread, once a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from serving.errors import ServingError

_EVERY_S = 1.0

logger = logging.getLogger(__name__)


class EverySecond:
    """A thread that does the same work every second, from `begin` on until `close`."""

    def __init__(self, name: str, work: Callable[[], None], outage: str) -> None:
        """`work` may raise errors, because it is repeated. After a ServingError, `outage` is logged
        once until the work succeeds."""
        self._name, self._work, self._outage = name, work, outage
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the thread, unless it was started before; a process that never needs it has
        none."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._ended.is_set():
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Stop after the current work. `begin` does nothing any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        warned = False
        while not self._ended.wait(_EVERY_S):
            try:
                self._work()
                warned = False
            except ServingError as error:
                if not warned:
                    logger.warning("%s: %s", self._outage, error)
                warned = True
            except Exception:
                logger.exception("the thread %r failed and continues", self._name)
