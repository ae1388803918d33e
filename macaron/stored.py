"""Models that `macaron serve --model` names: bundles as they are, and other projects' checkpoints,
imported once into a cache and found there again by their content."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from serving.bundle.folder import MANIFEST, file_hash
from serving.bundle.manifest import Activations
from serving.runtime.kernels import cache_folder

_KEY_DIGITS = 16


class _Form(NamedTuple):
    told: str
    precision: str
    activations: Activations | None


_FORMS = (
    _Form("int8", "int8", None),
    _Form("int8 with activations of 16 bits", "int8", "row16"),
    _Form("fp32", "fp32", None),
)
"""What an imported model may become: the first that loses little enough."""


class StoreError(Exception):
    """A model that cannot be served, with the reason."""


def folder_of(models: Sequence[Path]) -> Path:
    """A folder of links to the bundles of these models, as the server takes one.

    Each model is a bundle, or what `export import` takes. Raises StoreError for what is neither,
    where a package that an import needs is not installed, and where nothing can be written.
    """
    bundles = [_bundle_of(model) for model in models]
    listed = "\n".join(map(str, bundles)).encode()
    folder = cache_folder(os.environ) / "served" / hashlib.sha256(listed).hexdigest()[:_KEY_DIGITS]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, bundle in enumerate(bundles):
            link = folder / f"{number}-{bundle.name}"
            if not link.is_symlink():
                link.symlink_to(bundle, target_is_directory=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return folder


def _bundle_of(model: Path) -> Path:
    model = model.expanduser().absolute()
    if not model.exists():
        raise StoreError(
            f"--model {model}: there is no such file or folder; a model on a hub is downloaded "
            "first, with `hf download OWNER/NAME --local-dir FOLDER`"
        )
    if (model / MANIFEST).is_file():
        return model
    try:
        bundle = cache_folder(os.environ) / "imported" / _content_key(model) / model.stem
        if not (bundle / MANIFEST).is_file():
            _import(model, bundle)
    except OSError as error:
        raise _cannot_write(error.filename or model, error) from error
    return bundle


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


def _import(model: Path, bundle: Path) -> None:
    """Import as int8; where that loses too much, with activations of 16 bits, and where these do,
    too, as fp32. What is done is told on stderr."""
    try:
        import export
        from export.bundles.subject import Form
        from export.errors import ExportError, ParityError
        from export.importing.bundle import import_bundle
    except ModuleNotFoundError as error:
        raise StoreError(
            f"--model {model}: no bundle, and to import it the Python package {error.name!r} is "
            "missing; install what that needs with: pip install 'macaron[export]'"
        ) from error

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger(export.__name__).setLevel(logging.INFO)
    print(f"{model}: imported once, into {bundle}", file=sys.stderr)
    try:
        for form, following in zip_longest(_FORMS, _FORMS[1:]):
            try:
                chosen = Form(form.precision, activations=form.activations)
                import_bundle(model, bundle, chosen, force=True)
                break
            except ParityError as error:
                if following is None:
                    raise
                print(
                    f"{model}: {form.told} loses too much ({error}); trying {following.told}",
                    file=sys.stderr,
                )
    except ExportError as error:
        raise StoreError(f"--model {error}") from error


def _cannot_write(path: Path | str, error: OSError) -> StoreError:
    return StoreError(
        f"--model: {path}: {error.strerror or error}; the cache is ~/.cache/macaron, "
        "XDG_CACHE_HOME names another place"
    )
