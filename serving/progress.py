"""How far a command has come, for whoever waits at a terminal."""

from __future__ import annotations

import codecs
import os
import re
import sys
import time

_PARTS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+")
_BEGUN = re.compile(r"\x1b(\[[0-9;]*)?$")
_UP = "\x1b[A"
"""Moves a terminal's cursor to the row above."""
_ERASE = "\x1b[K"
"""Takes away what stands from the cursor on."""
_WIDEST = 2000


class ProgressLine:
    """A counter on stderr: live on a terminal or with TQDM_POSITION=-1, one line at the end
    elsewhere."""

    def __init__(self, total: int, what: str = "sentences", done: int = 0) -> None:
        """`done` of the total were finished before; the speed is that of the others."""
        self._total, self._done, self._start = total, done, time.perf_counter()
        self._before = done
        self._what = what
        # As bars of tqdm take it: a process that reads them asks so for every step.
        self._live = sys.stderr.isatty() or os.environ.get("TQDM_POSITION") == "-1"

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


class Transcript:
    """What a process writes to stderr, as a terminal would show it: the last lines, in which bars
    of progress are written over."""

    def __init__(self, most: int) -> None:
        """`most` is the number of lines that are kept."""
        self._most = most
        self._rows = [""]
        self._row = 0
        """Of the cursor."""
        self._over = False
        """Whether the cursor is at the row's beginning: what comes is written over the row."""
        self._rest = ""
        """Of a sequence that has not come whole."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def feed(self, data: bytes) -> None:
        """Take what was written next."""
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
