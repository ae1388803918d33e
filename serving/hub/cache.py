"""The models that were pulled or imported, each in a folder of the cache with a note about it.

models/<name>/<revision>-<precision>/model.json   the note, written last
                                     <title>/     the bundle
downloads/<name>/                                 unfinished downloads of files that are not
                                                  in a repository
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from serving.errors import ModelNameError
from serving.folders import cache_folder
from serving.hub.names import slug
from serving.hub.tell import tell

_NOTE = "model.json"
_REVISION_DIGITS = 12
AUTO = "auto"
"""The default precision: the import chooses."""


@dataclass(frozen=True)
class Note:
    """Facts about a cached model that its bundle's manifest does not contain."""

    name: str
    """The name as requested."""
    revision: str
    """The revision behind the name: a commit, or the hash of the downloaded files."""
    precision: str
    """The precision as requested: AUTO or one of export's; AUTO for published bundles."""
    licence: str | None
    added: str
    """Time of the last pull, UTC, ISO 8601."""


@dataclass(frozen=True)
class Entry:
    """A model in the cache."""

    note: Note
    bundle: Path

    def size(self) -> int:
        """Bytes of the bundle."""
        return sum(file.stat().st_size for file in self.bundle.rglob("*") if file.is_file())


def models_folder() -> Path:
    """The folder of cached models."""
    return cache_folder(os.environ) / "models"


def downloads_folder(name: str) -> Path:
    """The folder of a model's downloads until it is imported."""
    return cache_folder(os.environ) / "downloads" / slug(name)


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder on the cache's disk. Raises ModelNameError if it cannot be created."""
    place = cache_folder(os.environ) / "downloads"
    try:
        place.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=place, prefix=".")
    except OSError as error:
        raise cannot_write(error.filename or place, error) from error
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bundle_place(name: str, revision: str, precision: str, title: str) -> Path:
    """The folder for a model's bundle."""
    key = f"{slug(revision)[:_REVISION_DIGITS]}-{slug(precision)}"
    return models_folder() / slug(name) / key / (slug(title) or "model")


def keep(bundle: Path, name: str, revision: str, precision: str, licence: str | None) -> Entry:
    """Record a bundle that is in its place, or a repeated pull. Its name then stands for it."""
    added = datetime.now(UTC).isoformat(timespec="microseconds")
    entry = Entry(Note(name, revision, precision, licence, added), bundle)
    path = bundle.parent / _NOTE
    draft = path.with_name(f".{_NOTE}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(entry.note), indent=1), encoding="utf-8")
    os.replace(draft, path)
    return entry


def entry_at(bundle: Path) -> Entry | None:
    """The model whose complete bundle is in this folder; None if there is none."""
    try:
        note = Note(**json.loads((bundle.parent / _NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return Entry(note, bundle) if bundle.is_dir() else None


def entries() -> list[Entry]:
    """All cached models, the last pulled first."""
    notes = models_folder().glob(f"*/*/{_NOTE}")
    bundles = (
        folder for note in notes for folder in note.parent.iterdir() if _is_bundle_folder(folder)
    )
    found = [entry for entry in map(entry_at, bundles) if entry]
    return sorted(found, key=lambda entry: entry.note.added, reverse=True)


def _is_bundle_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def names() -> set[str]:
    """The names of all cached models."""
    return {entry.note.name for entry in entries()}


def newest(name: str) -> Entry | None:
    """The model that was pulled last under a name; None if there is none."""
    return next((entry for entry in entries() if entry.note.name == name), None)


def remove(name: str) -> list[Entry]:
    """Delete all revisions and precisions of a name, and the rest of its downloads. Returns the
    deleted models."""
    with locked(name):
        gone = [entry for entry in entries() if entry.note.name == name]
        for entry in gone:
            (entry.bundle.parent / _NOTE).unlink()  # first, because half a model is not usable
            shutil.rmtree(entry.bundle.parent)
        shutil.rmtree(downloads_folder(name), ignore_errors=True)
    folder = models_folder() / slug(name)
    if gone and not any(folder.iterdir()):
        folder.rmdir()
    return gone


@contextmanager
def locked(name: str) -> Iterator[None]:
    """A lock on a name, across all processes.

    Raises ModelNameError if the cache is not writable.
    """
    path = cache_folder(os.environ) / "locks" / f"{slug(name)}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tell(f"{name}: another process is working on it; waiting")
            lock.acquire()
    except OSError as error:
        raise cannot_write(error.filename or path, error) from error
    try:
        yield
    finally:
        lock.release()


def cannot_write(path: Path | str, error: OSError) -> ModelNameError:
    """The error for a cache that is not writable."""
    return ModelNameError(
        f"{path}: {error.strerror or error}; the cache is {cache_folder(os.environ)}, and "
        "MACARON_CACHE can name another folder"
    )
