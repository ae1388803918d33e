"""From a name, or a path, to the folder of a bundle."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from serving.bundle.folder import MANIFEST, file_hash, read_manifest
from serving.errors import ModelNameError
from serving.hub.cache import (
    AUTO,
    Entry,
    bundle_place,
    cannot_write,
    entry_at,
    keep,
    locked,
    newest,
)
from serving.hub.importing import check_installed, import_bundle
from serving.hub.names import FORMS, Name, name_here
from serving.hub.publishers.published import Published, fetched
from serving.hub.tell import tell

_KEY_DIGITS = 12


def bundle_folder(given: str | Path) -> Path:
    """The folder of a bundle that a caller names: a path, or a model's name.

    A path that is there always wins, and a Path is never a name. A model is downloaded and, where
    it is no bundle, imported the first time; from then on it is taken from the cache, without a
    network. Raises ModelNameError where it cannot be had.
    """
    name = None if isinstance(given, Path) else name_here(given)
    if name is None:
        return Path(given)
    kept = newest(str(name))
    return kept.bundle if kept else pull(name).bundle


def served_bundle(given: str) -> Path:
    """The same for `macaron serve`: a path may be a checkpoint, too, which is imported once.

    Raises ModelNameError for what is neither, as well.
    """
    bundle = bundle_folder(given).expanduser().absolute()
    if not bundle.exists():
        raise ModelNameError(
            f"{given}: there is no such file or folder, and it is no name of a model: {FORMS}"
        )
    return bundle if (bundle / MANIFEST).is_file() else pull_path(bundle, AUTO).bundle


def pull(name: Name, precision: str = AUTO) -> Entry:
    """Have what a name stands for now in the cache, at this precision of `export import`.

    Raises ModelNameError where that fails, and leaves nothing behind but what was downloaded.
    """
    from serving.hub.look import look  # here, for who names a path downloads nothing

    with locked(str(name)):
        published = look(name)
        place = bundle_place(str(name), published.revision, precision, name.title)
        if entry_at(place) is None:
            _make(published, place, precision)
        return keep(place, str(name), published.revision, precision, published.licence)


def _make(published: Published, bundle: Path, precision: str) -> None:
    if published.is_bundle is False:
        check_installed(str(published.name))
        import_bundle(str(published.pinned), bundle, precision)
        return
    with fetched(published) as here:
        if not (here / MANIFEST).is_file():
            check_installed(str(published.name))
            import_bundle(str(published.name), bundle, precision)  # of what was downloaded
        elif precision == AUTO:
            _copied(here, bundle)
        else:
            raise ModelNameError(
                f"{published.name}: is a bundle already, with a precision of its own; leave "
                "--precision out"
            )


def _copied(folder: Path, bundle: Path) -> None:
    """Put a bundle that was downloaded to its place, if its files are what its manifest says; links
    cost no room where disks have them."""
    read_manifest(folder)
    try:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=bundle.parent, prefix="."))
        for file in folder.iterdir():
            try:
                os.link(file.resolve(), draft / file.name)
            except OSError:
                shutil.copyfile(file, draft / file.name)
        draft.chmod(0o755)
        shutil.rmtree(bundle, ignore_errors=True)
        os.replace(draft, bundle)
    except OSError as error:
        raise cannot_write(error.filename or bundle, error) from error


def pull_path(model: Path, precision: str) -> Entry:
    """Have a checkpoint of this machine in the cache as a bundle, imported once for its content.

    Raises ModelNameError where that fails.
    """
    name = str(model)
    with locked(name):
        try:
            revision = _content_key(model)
        except OSError as error:
            raise ModelNameError(f"{error.filename or model}: {error.strerror}") from error
        place = bundle_place(name, revision, precision, model.stem)
        if entry_at(place) is None:
            check_installed(name)
            tell(f"{name}: imported once, into {place}")
            import_bundle(name, place, precision)
        return keep(place, name, revision, precision, None)


def _content_key(model: Path) -> str:
    """Of the files that a model consists of: with another one of the same name nothing is
    mistaken. A file may need others beside it, but none of its own kind."""
    if model.is_file():
        others = (f for f in model.parent.iterdir() if f.suffix != model.suffix)
        files = [model, *filter(Path.is_file, others)]
    else:
        files = list(filter(Path.is_file, model.rglob("*")))
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(model.parent)} {file_hash(file)}\n".encode())
    return digest.hexdigest()[:_KEY_DIGITS]
