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
    """What a name stands for at this moment. Nothing but what says this has been downloaded."""

    name: Name
    revision: str
    """A commit, or a hash of what there is to download."""
    licence: str | None
    """As its publisher names it; None where nobody does."""
    place: str
    """Where it is downloaded from, for people."""
    size: int
    """Bytes of all files."""
    missing: int
    """Bytes of those that are not here yet."""
    download_folder: Path
    """Where downloads go, for the room that they need."""
    fetch_first: Callable[[Path], None]
    """Put what says what the model is into a folder, if that can be had by itself."""
    fetch: Callable[[Path], Path]
    """Put the whole model into a folder; returns what an import is given: the folder, a folder in
    it, or a file."""
    is_bundle: bool | None = False
    """Whether it is a bundle of this project, which needs no import; None where that shows when it
    has been downloaded."""
    remark: str = ""
    """What else a user should know before it is downloaded."""

    @property
    def pinned(self) -> Name:
        """The name with the revision that it stands for now, where it has one."""
        if isinstance(self.name, HubName):
            return replace(self.name, revision=self.revision)
        return self.name

    @property
    def origin(self) -> str:
        """The name with what says which revision of it this is."""
        pinned = str(self.pinned)
        return pinned if self.revision in pinned else f"{pinned}, {self.revision[:_REVISION_SHOWN]}"

    @property
    def label(self) -> str:
        """The name with its revision as people read it while it is fetched."""
        name = replace(self.name, revision=None) if isinstance(self.name, HubName) else self.name
        return f"{str(name).partition('#')[0]}, {self.revision[:_REVISION_SHOWN]}"


@contextmanager
def fetched(published: Published, check: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """The model, downloaded; what is yielded is gone afterwards, and downloads that are kept by
    nobody else are too, unless something fails: then the next try goes on from there.

    `check` sees a folder with what says what the model is, before the rest is downloaded, and
    raises what it likes. Raises ModelNameError where a disk has no room for the model, where it
    cannot be downloaded, and where it is not what its hash says.
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
    """Say what is about to be downloaded, and under which licence it may be used."""
    if published.size and not published.missing and published.licence is None:
        return  # it was said when it was downloaded
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
    """Raise ModelNameError where there is no room for the downloads and for a bundle, which may be
    as large as the model."""
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
    """Nothing, of a model that comes in one piece: what it is shows when all of it is there."""


def linked(sources: Sequence[tuple[str, Path]], folder: Path) -> None:
    """Put files into a folder by links, under these paths."""
    for name, source in sources:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(source.resolve())
