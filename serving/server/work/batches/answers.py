"""The answers to the lines of a batch, as they are kept until all are there."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from serving.errors import StoreUnavailableError

_SHARE_S = 2.0
"""Seconds between two parts of the answers that are put where other servers find them."""

logger = logging.getLogger(__name__)


class LineAnswers:
    """Answers on the disk, of which each line has one: the first."""

    def __init__(
        self,
        own: BinaryIO,
        total: int,
        share: Callable[[bytes], None] | None = None,
    ) -> None:
        """Read what is there of `total` lines; raises OSError as all of it does.

        `own` is open for reading and writing; it has the answers of earlier claims, and gets those
        of this one at its end. `share` puts the answers that have come since where other servers
        find them, and raises StoreUnavailableError; None where they find `own`.
        """
        self._total, self._lock, self._sharing = total, threading.Lock(), threading.Lock()
        self._own, self._share = own, share
        self._places: dict[int, tuple[int, int]] = {}
        self._good: set[int] = set()
        self.size = 0
        """Bytes of all answers."""
        self._read()
        self._shared, self._shared_at = own.seek(0, os.SEEK_END), time.monotonic()

    @property
    def done(self) -> int:
        """Lines that were answered well."""
        return len(self._good)

    @property
    def failed(self) -> int:
        """Lines whose answer is an error."""
        return len(self._places) - len(self._good)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, answer: bytes, *, good: bool) -> None:
        """Keep the answer to a line; for threads."""
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
        """The answers that are good or those that are not, in the order of their lines; `missing`
        makes those of lines that have none."""
        for number in sorted(self._places) if missing is None else range(self._total):
            if number not in self._places:
                if missing is not None:
                    yield missing(number) + b"\n"
                continue
            if (number in self._good) == good:
                begin, size = self._places[number]
                yield os.pread(self._own.fileno(), size, begin).split(b" ", 2)[2]

    def share(self) -> None:
        """Have other servers find all that is there, unless it is closed; for threads."""
        with self._sharing:
            if self._share is not None and not self._own.closed:
                self._share_more(self._share)

    def close(self) -> None:
        """Close the file; what is in it stays."""
        with self._lock:
            self._own.close()

    def _share_more(self, share: Callable[[bytes], None]) -> None:
        """Share what has not been shared, or as much of it later where that is not possible."""
        with self._lock:  # else some of it may not be written yet
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
