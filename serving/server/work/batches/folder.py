"""The folder of uploaded files and results, each under its id, with the answers of running jobs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from serving.errors import StoreUnavailableError
from serving.server.work.batches.answers import LineAnswers

_PART = ".part"
_BLOCK = 2**20
YOUNG_S = 3600.0
"""Files younger than this may not be recorded in the store yet, in seconds."""
_AT_ONCE = 200
OURS = re.compile(r"file-[0-9a-f]{32}(?:\.part)?")
"""Names that this module creates; the folder may hold other files, such as the store."""

Known = Callable[[Collection[str]], Collection[str]]
"""Returns those of at most a few hundred ids that the store knows."""


class FileFolder:
    """A folder that the servers of one store share."""

    def __init__(self, folder: Path) -> None:
        """The folder is created with the first file."""
        self._folder, self._progress = folder, folder / "progress"

    def content(self, id: str) -> Path:
        """Path of a file; raises FileNotFoundError if it does not exist."""
        path = self._folder / id
        if not path.is_file():
            raise FileNotFoundError(path)
        return path

    def opened(self, id: str) -> BinaryIO:
        """Open a file. It stays readable while it is open, even if it is deleted. Raises
        FileNotFoundError."""
        return (self._folder / id).open("rb")

    def keep(self, id: str, content: IO[bytes]) -> None:
        """Store a file, atomically; raises StoreUnavailableError if the disk is full."""
        try:
            self.write(id, iter(lambda: content.read(_BLOCK), b""))
        except OSError as error:
            raise StoreUnavailableError(
                f"the server cannot keep the file ({error.strerror}); try again later"
            ) from error

    def write(self, id: str, parts: Iterable[bytes]) -> int:
        """Store a file from parts, atomically; returns its size in bytes. Raises OSError."""
        part, size = self._folder / f"{id}{_PART}", 0
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with part.open("wb") as file:
                for each in parts:
                    size += file.write(each)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._folder / id)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return size

    def remove(self, id: str) -> None:
        """Delete a file."""
        (self._folder / id).unlink(missing_ok=True)

    def answers(self, job: str, claim: str, total: int) -> LineAnswers:
        """The answers to the `total` lines of a job, to which a claim adds more; raises OSError.

        Each claim has a file of its own, which starts with the answers of earlier claims. A killed
        process, or one that lost its claim, may have left a partial line at the end; only complete
        lines count.
        """
        folder = self._progress / job
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.ExitStack() as stack:
            own = cast(BinaryIO, stack.enter_context((folder / claim).open("a+b")))
            for path in sorted(folder.iterdir()):
                if path.name != claim:
                    with path.open("rb") as earlier:
                        own.writelines(line for line in earlier if line.endswith(b"\n"))
                    own.flush()
                    path.unlink()
            stack.pop_all()
        return LineAnswers(own, total)

    def remove_answers(self, job: str) -> None:
        """Delete the answers of a job."""
        shutil.rmtree(self._progress / job, ignore_errors=True)

    def sweep(self, known: Known, unended: Known) -> None:
        """Delete files that the store does not know, and answers of jobs that are not running: a
        killed process leaves them. Files with other names stay."""
        old = time.time() - YOUNG_S
        ours = (path for path in _within(self._folder) if OURS.fullmatch(path.name))
        for name in unknown((path.name for path in ours if _is_older(path, old)), known):
            self.remove(name)
        begun = (path.name for path in _within(self._progress) if _is_older(path, old))
        for name in unknown(begun, unended):
            self.remove_answers(name)


def unknown(names: Iterable[str], known: Known) -> Iterator[str]:
    """The given names that the store does not know, asked in blocks of a few hundred."""
    left = list(names)
    for begin in range(0, len(left), _AT_ONCE):
        some = left[begin : begin + _AT_ONCE]
        yield from sorted(set(some) - set(known(some)))


def _within(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _is_older(path: Path, time: float) -> bool:
    try:
        return path.stat().st_mtime < time
    except OSError:  # it has just been deleted
        return False
