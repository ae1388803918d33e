"""The source of an import as a user names it: a path, or the name of a model to download."""

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
    """A checkpoint on this machine."""

    path: Path
    origin: str | None
    """Name and revision of a downloaded model."""


@contextmanager
def named_source(given: str, family: str | None = None) -> Iterator[NamedSource]:
    """The checkpoint at a path or with a name; an existing path takes precedence.

    The files that identify a model are checked before its weights are downloaded. Raises
    ModelNameError for a name without a model, and ExportError if it is already a bundle or no
    reader supports it.
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
    """Raise ExportError if a folder of transformers identifies itself as unsupported; other
    toolkits store that in the weights."""
    if any((folder / name).is_file() for name in (CONFIG, ADAPTER)):
        try:
            recognise(folder, family)
        except ExportError as error:
            raise _named(error, folder, published) from error


def _named(error: ExportError, place: Path, published: Published) -> ExportError:
    """The error with the model's name in place of its temporary path."""
    return type(error)(str(error).replace(str(place), str(published.name)))
