"""Shows the progress of a command to a user at a terminal."""

from __future__ import annotations

import codecs
import os
import re
import sys
import time

_PARTS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+")
_BEGUN = re.compile(r"\x1b(\[[0-9;]*)?$")
_UP = "\x1b[A"
"""The sequence that moves a terminal's cursor to the row above."""
_ERASE = "\x1b[K"
"""The sequence that erases everything from the cursor on."""
_WIDEST = 2000


class ProgressLine:
    """A counter on stderr: live on a terminal or with TQDM_POSITION=-1, one line at the end
    elsewhere."""

    def __init__(self, total: int, what: str = "sentences", done: int = 0) -> None:
        """Create a line for a total, of which `done` were finished before; the speed is that of the
        others."""
        self._total, self._done, self._start = total, done, time.perf_counter()
        self._before = done
        self._what = what
        # As with tqdm's bars: a process that reads them sets this to get every step.
        self._live = sys.stderr.isatty() or os.environ.get("TQDM_POSITION") == "-1"

    def add(self, count: int) -> None:
        """Count more as finished; on a terminal the line is rewritten."""
        self._done += count
        if self._live:
            print(f"\r{self._line()}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Write the line for the last time, with the totals, on a terminal or elsewhere."""
        print(("\r" if self._live else "") + self._line(), file=sys.stderr)

    def _line(self) -> str:
        seconds = time.perf_counter() - self._start
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        return f"{self._done}/{self._total} {self._what}, {seconds:.1f} s, {rate:.1f}/s"


class Transcript:
    """The last lines that a process writes to stderr, as a terminal would show them: progress bars
    are overwritten."""

    def __init__(self, most: int) -> None:
        """Create an empty transcript that keeps at most `most` lines."""
        self._most = most
        self._rows = [""]
        self._row = 0
        """Row of the cursor."""
        self._over = False
        """Whether the cursor is at the beginning of the row, so that new text overwrites it."""
        self._rest = ""
        """The beginning of an escape sequence that has not arrived completely."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def feed(self, data: bytes) -> None:
        """Add the text that was written next."""
        text = self._rest + self._decode(data)
        begun = _BEGUN.search(text)
        self._rest = begun[0] if begun else ""
        for part in _PARTS.findall(text.removesuffix(self._rest)):
            if part == "\n":
                self._row, self._over = self._row + 1, True
                if self._row == len(self._rows):
                    self._rows.append("")
            elif part == _UP:
                self._row = max(0, self._row - 1)
            elif part == "\r":
                self._over = True
            elif part == _ERASE and self._over:
                self._rows[self._row] = ""
            elif not part.startswith("\x1b"):
                self._rows[self._row] = part if self._over else self._rows[self._row] + part
                self._over = False
        gone = max(0, len(self._rows) - self._most)
        del self._rows[:gone]
        self._row = max(0, self._row - gone)

    @property
    def lines(self) -> list[str]:
        """The last lines that are not blank, each cut at 2,000 characters."""
        return [row.rstrip()[:_WIDEST] for row in self._rows if row.strip()]
