"""A published model, and its download into a local folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from serving.errors import ModelNameError
from serving.hub.cache import downloads_folder, models_folder, scratch
from serving.hub.names import HubName, Name, slug
from serving.hub.tell import size_text, tell

_REVISION_SHOWN = 12
_NOT_COMMERCIAL = re.compile(r"(^|[-_ ])nc([-_ ]|$)|non-?commercial|research-only", re.IGNORECASE)


@dataclass(frozen=True)
class Published:
    """A published model that a name stands for at this moment. Only what is needed to know this has
    been downloaded."""

    name: Name
    revision: str
    """A commit, or a hash of the files to download."""
    licence: str | None
    """The licence that its publisher names; None if there is none."""
    place: str
    """The server or hub that it is downloaded from, for messages."""
    size: int
    """Size of all files in bytes."""
    missing: int
    """Number of bytes that have not been downloaded yet."""
    download_folder: Path
    """Folder for downloads, whose disk needs room for them."""
    fetch_first: Callable[[Path], None]
    """Puts the files that describe the model into a folder, if they can be downloaded
    separately."""
    fetch: Callable[[Path], Path]
    """Puts the whole model into a folder. Returns the path to import: the folder, a folder in it,
    or a file."""
    is_bundle: bool | None = False
    """Whether it is a bundle of this project, which needs no import; None if that is only known
    after the download."""
    remark: str = ""
    """Further remark for users before the download."""

    @property
    def pinned(self) -> Name:
        """The name with its present revision, if it has one."""
        if isinstance(self.name, HubName):
            return replace(self.name, revision=self.revision)
        return self.name

    @property
    def origin(self) -> str:
        """The name with its revision, which identifies the content."""
        pinned = str(self.pinned)
        return pinned if self.revision in pinned else f"{pinned}, {self.revision[:_REVISION_SHOWN]}"

    @property
    def label(self) -> str:
        """The name with its revision, as shown to people during a download."""
        name = replace(self.name, revision=None) if isinstance(self.name, HubName) else self.name
        return f"{str(name).partition('#')[0]}, {self.revision[:_REVISION_SHOWN]}"


@contextmanager
def fetched(published: Published, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Download a model and yield its path. Afterwards it is deleted, and so are downloads that are
    not kept elsewhere, unless something fails: then the next try continues from there.

    `check` gets a folder with the files that describe the model, before the rest is downloaded, and
    may raise any error. Raises ModelNameError if a disk has no room for the model, if it cannot be
    downloaded, and if a hash is wrong.
    """
    _announce(published)
    _check_room(published)
    with scratch() as place:
        folder = place / (slug(published.name.title) or "model")
        folder.mkdir()
        if check is not None:
            published.fetch_first(folder)
            check(folder)
        yield published.fetch(folder)
    shutil.rmtree(downloads_folder(str(published.name)), ignore_errors=True)


def _announce(published: Published) -> None:
    """Announce the download, and the licence under which the model may be used."""
    if published.size and not published.missing and published.licence is None:
        return  # it was announced when it was downloaded
    size = size_text(published.size) if published.size else "of unknown size"
    missing = size_text(published.missing)
    if published.size and missing != size:
        size += f", {missing} to download"
    tell(f"{published.label}: {size}, from {published.place}; {_licence_text(published.licence)}")
    if published.remark:
        tell(f"{published.label}: {published.remark}")


def _licence_text(licence: str | None) -> str:
    if licence is None:
        return "its publisher names no licence: find out whether you may use it"
    if _NOT_COMMERCIAL.search(licence):
        return f"warning: its licence, {licence}, forbids commercial use"
    return f"licence: {licence}"


def _check_room(published: Published) -> None:
    """Raise ModelNameError if there is no room for the downloads and for a bundle, which may be as
    large as the model."""
    needed: dict[int, list[tuple[Path, int]]] = {}
    wanted = ((published.download_folder, published.missing), (models_folder(), published.size))
    for folder, size in wanted:
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        needed.setdefault(there.stat().st_dev, []).append((there, size))
    for parts in needed.values():
        there, total = parts[0][0], sum(size for _, size in parts)
        free = shutil.disk_usage(there).free
        if free < total:
            raise ModelNameError(
                f"{published.name}: the disk of {there} has {size_text(free)} free, but the "
                f"download and its bundle need {size_text(total)}; free some space, or set "
                "MACARON_CACHE (bundles) and HF_HOME (downloads) to folders on another disk"
            )


def listed_pairs(near: Iterable[str], pairs: Iterable[str]) -> str:
    """The end of an error message about a language pair that is not published: the pairs with one
    of its languages, or else a few of all pairs."""
    if found := sorted(set(near)):
        return f"pairs with one of its languages: {', '.join(found)}"
    return f"it has, for example: {', '.join(sorted(set(pairs))[:8]) or 'none'}"


def whole(folder: Path) -> None:
    """Does nothing: a model that is downloaded in one piece shows what it is only afterwards."""


def linked(sources: Sequence[tuple[str, Path]], folder: Path) -> None:
    """Put files into a folder by links, under these paths."""
    for name, source in sources:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(source.resolve())
