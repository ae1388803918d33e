"""Watches for models that nobody asks for."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable

from serving.translation.scheduler import TranslationScheduler

_LOOKS = 8
"""How often the watch looks within the time after which a model leaves."""
_LONGEST_PAUSE_S = 60.0

logger = logging.getLogger(__name__)


class IdleWatch:
    """A thread that looks now and then; none where models stay."""

    def __init__(self, after_s: float, look: Callable[[], None]) -> None:
        """`look` is called again and again, and asks `over` of each model; an `after_s` of 0 lets
        models stay."""
        self._after_s, self._look = after_s, look
        self._seen: weakref.WeakKeyDictionary[TranslationScheduler, float]
        self._seen = weakref.WeakKeyDictionary()
        """When each was first seen: one that was just loaded may have been asked for long ago."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._after_s and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="idle", daemon=True)
            self._thread.start()

    def over(self, model: TranslationScheduler, used: float) -> bool:
        """Whether the time of a model is over that was last asked for when the monotonic clock said
        `used`."""
        now = time.monotonic()
        return now - max(used, self._seen.setdefault(model, now)) >= self._after_s

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(min(self._after_s / _LOOKS, _LONGEST_PAUSE_S)):
            try:
                self._look()
            except Exception:
                logger.exception("idle models could not leave")
