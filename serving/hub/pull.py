"""Turns a model's name, or a path, into the folder of a bundle."""

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
    names,
    newest,
)
from serving.hub.importing import check_installed, import_bundle
from serving.hub.names import FORMS, Name, name_here, nearest, nearest_path
from serving.hub.publishers.published import Published, fetched
from serving.hub.tell import tell

_KEY_DIGITS = 12
IMPORTING = "importing it once, which takes a minute or more; the next start reads the cache"


def bundle_folder(given: str | Path) -> Path:
    """The folder of a bundle, given as a path or as a model's name.

    An existing path always wins, and a Path is never a name. The first time, a model is downloaded
    and, unless it is a bundle, imported. After that it comes from the cache, without a network.
    Raises ModelNameError for a model that is not available, and for text that is neither a path
    nor a name.
    """
    if isinstance(given, Path):
        return given
    name = name_here(given)
    if name is None:
        path = Path(given).expanduser()
        if not path.exists():
            hint = nearest(given, names()) or nearest_path(path)
            raise ModelNameError(
                f"{given}: there is no such file or folder, and it is not a model name: {FORMS}"
                f"{hint}"
            )
        return path
    kept = newest(str(name))
    return kept.bundle if kept else pull(name).bundle


def served_bundle(given: str) -> Path:
    """The folder of a bundle for `macaron serve`. A path may also be a checkpoint, which is
    imported once.

    Raises ModelNameError as `bundle_folder` does.
    """
    bundle = bundle_folder(given).absolute()
    return bundle if (bundle / MANIFEST).is_file() else pull_path(bundle, AUTO).bundle


def pull(name: Name, precision: str = AUTO) -> Entry:
    """Put the current revision of a named model into the cache, at this precision of `export
    import`.

    Raises ModelNameError if that fails; only the downloaded files are then kept.
    """
    from serving.hub.look import look  # imported here: a path needs no download

    with locked(str(name)):
        published = look(name)
        place = bundle_place(str(name), published.revision, precision, name.title)
        if entry_at(place) is None:
            _make(published, place, precision)
        return keep(place, str(name), published.revision, precision, published.licence)


def _make(published: Published, bundle: Path, precision: str) -> None:
    if published.is_bundle is False:
        check_installed(str(published.name))
        tell(f"{published.label}: {IMPORTING}")
        import_bundle(str(published.pinned), bundle, precision)
        return
    with fetched(published) as here:
        if not (here / MANIFEST).is_file():
            check_installed(str(published.name))
            tell(f"{published.label}: {IMPORTING}")
            import_bundle(str(published.name), bundle, precision)  # reads the finished download
        elif precision == AUTO:
            _copied(here, bundle)
        else:
            raise ModelNameError(
                f"{published.name}: is a finished bundle, whose precision is fixed; leave out "
                "--precision"
            )


def _copied(folder: Path, bundle: Path) -> None:
    """Put a downloaded bundle into its place, after checking its files against its manifest. Hard
    links save space where possible."""
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
    """Put a local checkpoint into the cache as a bundle; the same content is imported once.

    Raises ModelNameError if that fails.
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
            tell(f"{name}: {IMPORTING}")
            import_bundle(name, place, precision)
        return keep(place, name, revision, precision, None)


def _content_key(model: Path) -> str:
    """A hash of the files of a model, so that another model of the same name gets another key. A
    single file may need files of other kinds beside it."""
    if model.is_file():
        others = (f for f in model.parent.iterdir() if f.suffix != model.suffix)
        files = [model, *filter(Path.is_file, others)]
    else:
        files = list(filter(Path.is_file, model.rglob("*")))
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(model.parent)} {file_hash(file)}\n".encode())
    return digest.hexdigest()[:_KEY_DIGITS]
