"""Finds models without recent requests."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable

from serving.translation.scheduler import TranslationScheduler

_LOOKS = 8
"""Number of checks within the time after which a model is unloaded."""
_LONGEST_PAUSE_S = 60.0

logger = logging.getLogger(__name__)


class IdleWatch:
    """A thread that checks for idle models regularly; there is none if models stay loaded."""

    def __init__(self, after_s: float, look: Callable[[], None]) -> None:
        """`look` is called regularly, and calls `over` for each model. With an `after_s` of 0,
        models stay loaded."""
        self._after_s, self._look = after_s, look
        self._seen: weakref.WeakKeyDictionary[TranslationScheduler, float]
        self._seen = weakref.WeakKeyDictionary()
        """Time when each model was first seen: one that was just loaded may have had its last
        request long ago."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start checking."""
        if self._after_s and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="idle", daemon=True)
            self._thread.start()

    def over(self, model: TranslationScheduler, used: float) -> bool:
        """Whether a model has been idle for too long; `used` is the time of its last request
        (monotonic)."""
        now = time.monotonic()
        return now - max(used, self._seen.setdefault(model, now)) >= self._after_s

    def close(self) -> None:
        """Stop checking."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(min(self._after_s / _LOOKS, _LONGEST_PAUSE_S)):
            try:
                self._look()
            except Exception:
                logger.exception("idle models could not be unloaded")
