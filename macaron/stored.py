"""A folder of links to the bundles of models that `macaron serve --model` names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from serving.folders import cache_folder
from serving.hub.cache import cannot_write
from serving.hub.pull import served_bundle

_KEY_DIGITS = 16


def folder_of(models: Sequence[str]) -> Path:
    """Create a folder of links to the bundles of these models, for the server.

    Each model is a bundle, a checkpoint that `export import` reads, or a name. Raises
    ModelNameError for anything else, if a package for an import is missing, and if the folder
    cannot be written.
    """
    bundles = [served_bundle(model) for model in models]
    listed = "\n".join(map(str, bundles)).encode()
    folder = cache_folder(os.environ) / "served" / hashlib.sha256(listed).hexdigest()[:_KEY_DIGITS]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, bundle in enumerate(bundles):
            link = folder / f"{number}-{bundle.name}"
            if not link.is_symlink():
                link.symlink_to(bundle, target_is_directory=True)
    except OSError as error:
        raise cannot_write(error.filename or folder, error) from error
    return folder
