"""The same as the folder of files in an object store, by what fsspec knows of its protocol.

An object is there whole or not at all, and cannot be added to: what lies in the store is worked
with in files of this machine's disk that have no name, and are gone with whoever has opened them.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from serving.errors import SettingsError, StoreUnavailableError
from serving.server.http.settings import variable
from serving.server.work.batches.answers import LineAnswers
from serving.server.work.batches.folder import OURS, YOUNG_S, FileFolder, Known, unknown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_BLOCK = 2**20
_AT_ONCE = 100
"""Parts of answers that are read at one time."""

logger = logging.getLogger(__name__)


class FileBucket:
    """A place in an object store that the servers of one store share."""

    def __init__(self, files: AbstractFileSystem, root: str) -> None:
        """`root` is where, as `files` names it; nothing is asked yet."""
        self._files, self._root = files, root.rstrip("/")

    def content(self, id: str) -> BinaryIO:
        """The same as `opened`, for whoever sends it."""
        return self.opened(id)

    def opened(self, id: str) -> BinaryIO:
        """The content of a file, as it was when it was asked for; raises FileNotFoundError where
        there is none, StoreUnavailableError where the object store does not answer."""
        with tempfile.NamedTemporaryFile() as file:
            with _our_errors("cannot be read"):
                self._files.get_file(self._path(id), file.name)
            return open(file.name, "rb")  # its name goes, whoever has opened it goes on

    def keep(self, id: str, content: IO[bytes]) -> None:
        """Put a file in, whole or not at all; raises StoreUnavailableError, where this machine's
        disk does not hold it too."""
        with _our_errors("cannot be written"):
            self.write(id, iter(lambda: content.read(_BLOCK), b""))

    def write(self, id: str, parts: Iterable[bytes]) -> int:
        """Do the same with parts of a content; gives its size, and raises OSError where this
        machine's disk does not hold it."""
        with tempfile.NamedTemporaryFile() as file:
            size = sum(map(file.write, parts))
            file.flush()
            self._put(Path(file.name), self._path(id))
        return size

    def remove(self, id: str) -> None:
        """Delete the content of a file; where that is not possible now, the sweep does it."""
        self._delete(self._path(id))

    def answers(self, job: str, claim: str, total: int) -> LineAnswers:
        """The answers that there are to the `total` lines of a job, for more of them by a claim,
        which come to the object store in parts; raises StoreUnavailableError."""
        folder = self._path(f"progress/{job}")
        with contextlib.ExitStack() as stack:
            own = cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile("w+b")))
            with _our_errors("cannot be read"), contextlib.suppress(FileNotFoundError):
                parts = sorted(self._files.find(folder))
                for begin in range(0, len(parts), _AT_ONCE):
                    some = self._files.cat(parts[begin : begin + _AT_ONCE])
                    own.writelines(some[name] for name in sorted(some))
            stack.pop_all()
        numbers = itertools.count()

        def share(part: bytes) -> None:
            with _our_errors("cannot be written"):
                self._files.pipe_file(f"{folder}/{claim}-{next(numbers):06}", part)

        return LineAnswers(own, total, share)

    def remove_answers(self, job: str) -> None:
        """Delete what has been done of a job, as `remove` does."""
        self._delete(self._path(f"progress/{job}"))

    def sweep(self, known: Known, unended: Known) -> None:
        """Delete contents that are not files of the store, and answers to what is no job that
        goes on, as a process that was killed leaves them. What has no name of a content stays."""
        names = filter(OURS.fullmatch, self._names(self._root))
        for name in unknown(names, known):
            if self._is_old(self._path(name)):
                self.remove(name)
        for name in unknown(self._names(self._path("progress")), unended):
            with _our_errors("cannot be read"):
                parts = self._files.find(self._path(f"progress/{name}"))
            if all(map(self._is_old, parts)):
                self.remove_answers(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _put(self, file: Path, path: str) -> None:
        with _our_errors("cannot be written"):
            try:
                self._files.put_file(str(file), path)
            except FileNotFoundError as error:  # of a store that has no such place
                raise StoreUnavailableError(
                    f"the store of files has no place {self._root}; make it"
                ) from error

    def _delete(self, path: str) -> None:
        try:
            with _our_errors("cannot be written"), contextlib.suppress(FileNotFoundError):
                self._files.rm(path, recursive=True)
        except StoreUnavailableError as error:
            logger.warning("what is not needed any more stays for now: %s", error)

    def _names(self, path: str) -> list[str]:
        with _our_errors("cannot be read"), contextlib.suppress(FileNotFoundError):
            return [name.rstrip("/").rpartition("/")[2] for name in self._files.ls(path, False)]
        return []

    def _is_old(self, path: str) -> bool:
        """Whether it was written long ago; not, where it has just been deleted."""
        with _our_errors("cannot be read"), contextlib.suppress(FileNotFoundError):
            return bool(self._files.modified(path).timestamp() < time.time() - YOUNG_S)
        return False


def files_at(place: str | Path) -> FileFolder | FileBucket:
    """Where files lie: a folder, or what a URL names; raises SettingsError for one that nothing is
    known of, or that needs a package."""
    if "://" not in str(place):
        return FileFolder(Path(place))
    try:
        # Only here: most servers have a folder.
        import fsspec

        # What another server has put there is seen at once.
        files, root = fsspec.core.url_to_fs(str(place), use_listings_cache=False)
    except ImportError as error:
        raise SettingsError(f"{variable('files')}={place} needs a package: {error}") from error
    except ValueError as error:
        raise SettingsError(
            f"{variable('files')} must be a folder, or a URL that fsspec knows, such as "
            f"s3://BUCKET/PREFIX, got {str(place)!r} ({error})"
        ) from error
    if "file" in files.protocol:
        return FileFolder(Path(root))
    return FileBucket(files, root)


@contextlib.contextmanager
def _our_errors(what: str) -> Iterator[None]:
    """Raise whatever a library of an object store says as StoreUnavailableError, but for what is
    not there: each has errors of its own, and most of them pass."""
    try:
        yield
    except (FileNotFoundError, StoreUnavailableError):
        raise
    except Exception as error:
        raise StoreUnavailableError(
            f"the store of files {what} ({type(error).__name__}); try again later"
        ) from error
