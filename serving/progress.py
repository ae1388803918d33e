"""How far a command has come, for whoever waits at a terminal."""

from __future__ import annotations

import sys
import time


class ProgressLine:
    """A counter on stderr: live on a terminal, one line at the end elsewhere."""

    def __init__(self, total: int, what: str = "sentences", done: int = 0) -> None:
        """`done` of the total were finished before; the speed is that of the others."""
        self._total, self._done, self._start = total, done, time.perf_counter()
        self._before = done
        self._what = what
        self._live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Count so many more as finished; on a terminal the line is written anew."""
        self._done += count
        if self._live:
            print(f"\r{self._line()}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Write the line for the last time, with the totals, on a terminal or not."""
        print(("\r" if self._live else "") + self._line(), file=sys.stderr)

    def _line(self) -> str:
        seconds = time.perf_counter() - self._start
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        return f"{self._done}/{self._total} {self._what}, {seconds:.1f} s, {rate:.1f}/s"
