"""The folder in which files lie, each under its id, and below it what batches have done so far."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

from serving.errors import StoreUnavailableError

_PART = ".part"
_BLOCK = 2**20
_YOUNG_S = 3600.0
"""What was written within this time may yet be noted in the store."""
_AT_ONCE = 200
_OURS = re.compile(r"file-[0-9a-f]{32}(?:\.part)?")
"""Names of what is put here; the folder may hold what is somebody else's, such as the store."""


class FileFolder:
    """A folder that the servers of one store share."""

    def __init__(self, folder: Path) -> None:
        """The folder is made for the first file."""
        self._folder, self._progress = folder, folder / "progress"

    def path(self, id: str) -> Path:
        """Where the content of a file lies."""
        return self._folder / id

    def keep(self, id: str, content: IO[bytes]) -> None:
        """Put a file in, whole or not at all; raises StoreUnavailableError where the disk does not
        hold it."""
        try:
            self.write(id, iter(lambda: content.read(_BLOCK), b""))
        except OSError as error:
            raise StoreUnavailableError(
                f"the server cannot keep the file ({error.strerror}); try again later"
            ) from error

    def write(self, id: str, parts: Iterable[bytes]) -> int:
        """Do the same with parts of a content; gives its size, and raises OSError."""
        part, size = self._folder / f"{id}{_PART}", 0
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with part.open("wb") as file:
                for each in parts:
                    size += file.write(each)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path(id))
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return size

    def remove(self, id: str) -> None:
        """Delete the content of a file."""
        self.path(id).unlink(missing_ok=True)

    def progress(self, job: str) -> Path:
        """The folder of what has been done of a job."""
        return self._progress / job

    def remove_progress(self, job: str) -> None:
        """Delete what has been done of a job."""
        shutil.rmtree(self.progress(job), ignore_errors=True)

    def sweep(self, known: Callable[[Collection[str]], Collection[str]]) -> None:
        """Delete contents that are not files of the store, as a process that was killed leaves
        them; `known` gives those of some ids that are. What has no name of a content stays."""
        if not self._folder.is_dir():
            return
        old = time.time() - _YOUNG_S
        ours = (path for path in self._folder.iterdir() if _OURS.fullmatch(path.name))
        names = [path.name for path in ours if _is_older(path, old)]
        for begin in range(0, len(names), _AT_ONCE):
            some = names[begin : begin + _AT_ONCE]
            for name in set(some) - set(known(some)):
                self.remove(name)


class LineAnswers:
    """The answers to the lines of a batch on the disk, of which each has one.

    Every claim of its job writes into a file of its own: whatever a process that was killed, or one
    that has lost its claim, has written last, whole lines count and no others.
    """

    def __init__(self, folder: Path, claim: str, total: int) -> None:
        """Read what is there of `total` lines; raises OSError as all of it does."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._total, self._lock = total, threading.Lock()
        self._places: dict[int, tuple[Path, int, int]] = {}
        self._good: set[int] = set()
        self.size = 0
        """Bytes of all answers."""
        for path in sorted(folder.iterdir()):
            self._read(path)
        self._path = folder / claim
        self._file = self._path.open("ab")

    @property
    def done(self) -> int:
        """Lines that were answered well."""
        return len(self._good)

    @property
    def failed(self) -> int:
        """Lines whose answer is an error."""
        return len(self._places) - len(self._good)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, answer: bytes, *, good: bool) -> None:
        """Keep the answer to a line; for threads."""
        line = b"%d %d %s\n" % (number, good, answer)
        with self._lock:
            begin = self._file.tell()
            self._file.write(line)
            self._file.flush()
            self._note(number, self._path, begin, line)

    def lines(
        self, *, good: bool, missing: Callable[[int], bytes] | None = None
    ) -> Iterator[bytes]:
        """The answers that are good or those that are not, in the order of their lines; `missing`
        makes those of lines that have none."""
        with contextlib.ExitStack() as stack:
            files: dict[Path, IO[bytes]] = {}
            for number in sorted(self._places) if missing is None else range(self._total):
                if number not in self._places:
                    if missing is not None:
                        yield missing(number) + b"\n"
                    continue
                if (number in self._good) != good:
                    continue
                path, begin, size = self._places[number]
                if path not in files:
                    files[path] = stack.enter_context(path.open("rb"))
                files[path].seek(begin)
                yield files[path].read(size).split(b" ", 2)[2]

    def close(self) -> None:
        """Close the file; what is in it stays."""
        self._file.close()

    def _read(self, path: Path) -> None:
        begin = 0
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self._note(int(line.split(b" ", 1)[0]), path, begin, line)
                begin += len(line)

    def _note(self, number: int, path: Path, begin: int, line: bytes) -> None:
        if number in self._places:
            return
        self._places[number] = path, begin, len(line)
        self.size += len(line)
        if line.split(b" ", 2)[1] == b"1":
            self._good.add(number)


def _is_older(path: Path, time: float) -> bool:
    try:
        return path.is_file() and path.stat().st_mtime < time
    except OSError:  # it has just been deleted
        return False
