"""The answers to the lines of a batch, stored until all lines are answered."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from serving.errors import StoreUnavailableError

_SHARE_S = 2.0
"""Seconds between two uploads of new answers for other servers."""

logger = logging.getLogger(__name__)


class LineAnswers:
    """Answers on disk; the first answer to a line counts."""

    def __init__(
        self,
        own: BinaryIO,
        total: int,
        share: Callable[[bytes], None] | None = None,
    ) -> None:
        """Read the answers to `total` lines that exist; raises OSError, as all methods do.

        `own` is open for reading and writing. It holds the answers of earlier claims; those of this
        claim are appended. `share` uploads new answers for other servers and raises
        StoreUnavailableError; it is None if other servers can read `own`.
        """
        self._total, self._lock, self._sharing = total, threading.Lock(), threading.Lock()
        self._own, self._share = own, share
        self._places: dict[int, tuple[int, int]] = {}
        self._good: set[int] = set()
        self.size = 0
        """Size of all answers in bytes."""
        self._read()
        self._shared, self._shared_at = own.seek(0, os.SEEK_END), time.monotonic()

    @property
    def done(self) -> int:
        """Number of lines with a successful answer."""
        return len(self._good)

    @property
    def failed(self) -> int:
        """Number of lines whose answer is an error."""
        return len(self._places) - len(self._good)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, answer: bytes, *, good: bool) -> None:
        """Store the answer to a line. Blocking."""
        line = b"%d %d %s\n" % (number, good, answer)
        with self._lock:
            begin = self._own.tell()
            self._own.write(line)
            self._own.flush()
            self._note(number, begin, line)
        if self._share is not None and self._sharing.acquire(blocking=False):
            try:
                if time.monotonic() - self._shared_at >= _SHARE_S:
                    self._share_more(self._share)
            finally:
                self._sharing.release()

    def lines(
        self, *, good: bool, missing: Callable[[int], bytes] | None = None
    ) -> Iterator[bytes]:
        """The successful or the failed answers, in the order of their lines; `missing` formats a
        record for lines without an answer."""
        for number in sorted(self._places) if missing is None else range(self._total):
            if number not in self._places:
                if missing is not None:
                    yield missing(number) + b"\n"
                continue
            if (number in self._good) == good:
                begin, size = self._places[number]
                yield os.pread(self._own.fileno(), size, begin).split(b" ", 2)[2]

    def share(self) -> None:
        """Upload all answers, unless closed. Blocking."""
        with self._sharing:
            if self._share is not None and not self._own.closed:
                self._share_more(self._share)

    def close(self) -> None:
        """Close the file; its content stays."""
        with self._lock:
            self._own.close()

    def _share_more(self, share: Callable[[bytes], None]) -> None:
        """Upload new answers; if that fails, they are uploaded later."""
        with self._lock:  # otherwise some of it may not be written yet
            end = self._own.tell()
        if end > self._shared:
            try:
                share(os.pread(self._own.fileno(), end - self._shared, self._shared))
                self._shared = end
            except StoreUnavailableError as error:
                logger.warning("answers of a batch are on this server alone: %s", error)
        self._shared_at = time.monotonic()

    def _read(self) -> None:
        begin = self._own.seek(0)
        for line in self._own:
            if line.endswith(b"\n"):
                self._note(int(line.split(b" ", 1)[0]), begin, line)
            begin += len(line)

    def _note(self, number: int, begin: int, line: bytes) -> None:
        if number in self._places:
            return
        self._places[number] = begin, len(line)
        self.size += len(line)
        if line.split(b" ", 2)[1] == b"1":
            self._good.add(number)
