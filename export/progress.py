"""The progress of an import, for those who wait for it: the step, and the time that is left."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

STEPS = {"reading": 0.06, "fitting": 0.32, "graphs": 0.30, "comparing": 0.32}
"""The steps in order, and the share of the total time that each takes: SmolLM2's, in int8 with
activations of 16 bits."""
_EVERY_S = 1.0
_NEARLY = 0.95
"""Largest share of a step that counts as done as long as the step itself reports nothing."""

logger = logging.getLogger(__name__)


class ImportProgress:
    """The steps of one import. The time left follows from the pace so far; a step that begins again
    begins the whole again."""

    def __init__(self, stream: TextIO, *, live: bool, now: Callable[[], float]) -> None:
        """With `live`, one line of the stream is rewritten again and again; otherwise each step
        logs a line. `now` gives seconds."""
        self._stream, self._live, self._now = stream, live, now
        self._lock = threading.Lock()
        self._start = self._since = now()
        self._step, self._part = "", 0.0

    def begin(self, step: str) -> None:
        """Note that one of `STEPS` begins."""
        with self._lock:
            if step == next(iter(STEPS)):
                self._start = self._now()
            self._step, self._part, self._since = step, 0.0, self._now()
        if self._live:
            self.show()
        else:
            logger.info("%s", self.line())

    def part(self, done: int, of: int) -> None:
        """Note the share of the current step that is done."""
        with self._lock:
            self._part, self._since = done / max(1, of), self._now()

    def line(self) -> str:
        """The step, and about how long the rest will take, once that is known."""
        names = list(STEPS)
        place = names.index(self._step)
        before = sum(STEPS[name] for name in names[:place])
        reached = before + STEPS[self._step] * self._part
        text = f"step {place + 1} of {len(names)}, {self._step}"
        spent = self._since - self._start
        if not reached or spent <= 0:
            return text
        pace = reached / spent
        most = before + STEPS[self._step] * max(self._part, _NEARLY)
        share = min(most, reached + pace * (self._now() - self._since))
        return f"{text}: {share:.0%}, about {_written((1 - share) / pace)} left"

    def show(self) -> None:
        """Rewrite the line; the cursor stays at its beginning, where a message may follow."""
        with self._lock:
            if self._step:
                self._stream.write(f"\x1b[K{self.line()}\r")
                self._stream.flush()

    def clear(self) -> None:
        """Take the line away, for a message or at the end."""
        with self._lock:
            self._stream.write("\x1b[K\r")  # whoever reads lines sees that the next one begins
            self._stream.flush()


_shown: list[ImportProgress] = []
"""The progress that this process shows: one entry, or none if nobody watches."""


def begin(step: str) -> None:
    """Call `ImportProgress.begin` of the progress that is shown, if any."""
    for progress in _shown:
        progress.begin(step)


def part(done: int, of: int) -> None:
    """Call `ImportProgress.part` of the progress that is shown, if any."""
    for progress in _shown:
        progress.part(done, of)


@contextmanager
def shown() -> Iterator[None]:
    """Show the progress of the block on stderr. On a terminal, and for a process that asks for
    progress bars as those of tqdm do (TQDM_POSITION=-1), it is a line that is kept up to date."""
    live = sys.stderr.isatty() or os.environ.get("TQDM_POSITION") == "-1"
    progress = ImportProgress(sys.stderr, live=live, now=time.monotonic)
    _shown.append(progress)
    try:
        if live:
            with _kept_up(progress):
                yield
        else:
            yield
    finally:
        _shown.remove(progress)


@contextmanager
def _kept_up(progress: ImportProgress) -> Iterator[None]:
    """Rewrite the line each second, and remove it before messages."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_EVERY_S):
            progress.show()

    def cleared(_: logging.LogRecord) -> bool:
        progress.clear()
        return True

    every = logging.getLogger().handlers
    handlers = [each for each in every if getattr(each, "stream", None) is sys.stderr]
    for handler in handlers:
        handler.addFilter(cleared)
    thread = threading.Thread(target=keep, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for handler in handlers:
            handler.removeFilter(cleared)
        progress.clear()


def _written(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
