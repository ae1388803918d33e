"""The counterpart of the folder of files in an object store, through fsspec.

An object is written whole or not at all, and cannot be appended to. Objects are downloaded to
unnamed temporary files on local disk, which vanish with the process that opened them.
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
"""Parts of answers that are downloaded at the same time."""

logger = logging.getLogger(__name__)


class FileBucket:
    """A location in an object store that several servers share."""

    def __init__(self, files: AbstractFileSystem, root: str) -> None:
        """`root` is its path within `files`; no request is made yet."""
        self._files, self._root = files, root.rstrip("/")

    def content(self, id: str) -> BinaryIO:
        """`opened`, for a file that is sent to a client."""
        return self.opened(id)

    def opened(self, id: str) -> BinaryIO:
        """Download a file; raises FileNotFoundError if it does not exist, StoreUnavailableError if
        the object store does not respond."""
        with tempfile.NamedTemporaryFile() as file:
            with _our_errors("cannot be read"):
                self._files.get_file(self._path(id), file.name)
            return open(file.name, "rb")  # the name disappears, and open handles stay usable

    def keep(self, id: str, content: IO[bytes]) -> None:
        """Store a file, atomically; raises StoreUnavailableError, also if the local disk is
        full."""
        with _our_errors("cannot be written"):
            self.write(id, iter(lambda: content.read(_BLOCK), b""))

    def write(self, id: str, parts: Iterable[bytes]) -> int:
        """Store a file from parts, atomically; returns its size in bytes. Raises OSError if the
        local disk is full."""
        with tempfile.NamedTemporaryFile() as file:
            size = sum(map(file.write, parts))
            file.flush()
            self._put(Path(file.name), self._path(id))
        return size

    def remove(self, id: str) -> None:
        """Delete a file; if that fails, the sweep deletes it later."""
        self._delete(self._path(id))

    def answers(self, job: str, claim: str, total: int) -> LineAnswers:
        """The answers to the `total` lines of a job, to which a claim adds more; they are uploaded
        in parts. Raises StoreUnavailableError."""
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
        """Delete the answers of a job, as `remove` does."""
        self._delete(self._path(f"progress/{job}"))

    def sweep(self, known: Known, unended: Known) -> None:
        """Delete files that the store does not know, and answers of jobs that are not running: a
        killed process leaves them. Objects with other names stay."""
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
            except FileNotFoundError as error:  # the store has no such bucket
                raise StoreUnavailableError(
                    f"the store of files has no place {self._root}; make it"
                ) from error

    def _delete(self, path: str) -> None:
        try:
            with _our_errors("cannot be written"), contextlib.suppress(FileNotFoundError):
                self._files.rm(path, recursive=True)
        except StoreUnavailableError as error:
            logger.warning("files that are no longer needed stay for now: %s", error)

    def _names(self, path: str) -> list[str]:
        with _our_errors("cannot be read"), contextlib.suppress(FileNotFoundError):
            return [name.rstrip("/").rpartition("/")[2] for name in self._files.ls(path, False)]
        return []

    def _is_old(self, path: str) -> bool:
        """Whether an object was written long ago; False if it has just been deleted."""
        with _our_errors("cannot be read"), contextlib.suppress(FileNotFoundError):
            return bool(self._files.modified(path).timestamp() < time.time() - YOUNG_S)
        return False


def files_at(place: str | Path) -> FileFolder | FileBucket:
    """Open the place of files: a folder, or a URL that fsspec knows. Raises SettingsError if the
    protocol is unknown or needs a package that is not installed."""
    if "://" not in str(place):
        return FileFolder(Path(place))
    try:
        # Imported here, because most servers have a folder.
        import fsspec

        # Without a cache, files of other servers are visible at once.
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
    """Convert errors of an object store's library into StoreUnavailableError, except for missing
    objects. Each library has errors of its own, and most of them are temporary."""
    try:
        yield
    except (FileNotFoundError, StoreUnavailableError):
        raise
    except Exception as error:
        raise StoreUnavailableError(
            f"the store of files {what} ({type(error).__name__}); try again later"
        ) from error
