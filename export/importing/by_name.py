"""What a user names as the source of an import: a path, or a model by its name, downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError
from export.importing.bundle import recognise
from export.importing.folder import CONFIG
from export.importing.unread import ADAPTER
from serving.bundle.folder import MANIFEST
from serving.hub.look import look
from serving.hub.names import Name, name_here
from serving.hub.publishers.published import Published, fetched


@dataclass(frozen=True)
class NamedSource:
    """A checkpoint that lies on this machine now."""

    path: Path
    origin: str | None
    """The name with its revision, of what was downloaded."""


@contextmanager
def named_source(given: str, family: str | None = None) -> Iterator[NamedSource]:
    """The checkpoint that a path or a name stands for; a path that is there wins.

    What says what a repository holds is looked at before its weights are downloaded. Raises
    ModelNameError where a name stands for nothing that can be had, and ExportError where it is a
    bundle already, or nothing reads it.
    """
    name = name_here(given)
    if name is None:
        yield NamedSource(Path(given), None)
        return
    published = look(name)
    if published.is_bundle:
        raise _is_bundle(name)
    with fetched(published, lambda folder: _check(published, folder, family)) as here:
        if (here / MANIFEST).is_file():
            raise _is_bundle(name)
        try:
            yield NamedSource(here, published.origin)
        except ExportError as error:
            raise _named(error, here, published) from error


def _is_bundle(name: Name) -> ExportError:
    return ExportError(
        f"{name}: is a bundle already, and is served as it is, with `macaron serve --model {name}`"
    )


def _check(published: Published, folder: Path, family: str | None) -> None:
    """Raise ExportError for what no reader reads, where a folder of transformers says what it is;
    what other toolkits write says so in the weights."""
    if any((folder / name).is_file() for name in (CONFIG, ADAPTER)):
        try:
            recognise(folder, family)
        except ExportError as error:
            raise _named(error, folder, published) from error


def _named(error: ExportError, place: Path, published: Published) -> ExportError:
    """The error with the model's name in place of where it lies for a while."""
    return type(error)(str(error).replace(str(place), str(published.name)))
