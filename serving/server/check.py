"""Checks whether the server can start, as far as that takes no time: settings, manifests, hashes,
the store, the folders that are written.

Nothing is loaded: that is done once, by the process that serves.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.errors import ServingError, SettingsError, StoreUnavailableError
from serving.runtime.device_switch import wanted
from serving.runtime.gpu.cuda_switches import graphs_wanted, streams_wanted
from serving.runtime.kernels import kernels_wanted
from serving.search.options import parse_options
from serving.server.access.keys import Keys
from serving.server.http.settings import Settings, variable
from serving.server.models.manifests import check_defaults, read_manifests
from serving.server.work.stored.store import open_store


def check(settings: Settings) -> list[Manifest]:
    """Read the manifests of all bundles. Raises ServingError if one is missing, damaged or newer
    than this version, if its options exceed a limit, or if a variable of the runtime, the keys, the
    store or a folder that is written are unusable."""
    _check_switches()
    Keys(settings)
    manifests = [read_manifest(folder) for folder in read_manifests(settings)]
    for manifest in manifests:
        if manifest.task == "translate":
            check_defaults(manifest.name, parse_options(manifest.search), settings)
    try:
        store = open_store(settings)
    except StoreUnavailableError as error:
        raise StoreUnavailableError(f"{variable('store')}: {error}") from error
    if store is not None:
        store.close()
        _check_files(settings)
    if settings.documents is not None:
        _check_writable("documents", settings.documents)
    return manifests


def _check_switches() -> None:
    """Raise SettingsError for an invalid value of a variable that the runtime reads. A worker would
    find it after the server has said that it listens, or not before a bundle for a GPU comes."""
    wanted()
    kernels_wanted()
    graphs_wanted(os.environ)
    streams_wanted(os.environ)


def _check_files(settings: Settings) -> None:
    """Raise SettingsError if the files of batches can be kept nowhere, as far as that shows without
    asking an object store."""
    if not settings.files:
        return
    if "://" not in settings.files:
        _check_writable("files", Path(settings.files))
        return
    # Imported here, because most servers have a folder.
    from serving.server.work.batches.bucket import files_at

    files_at(settings.files)


def _check_writable(field: str, folder: Path) -> None:
    """Make a folder unless it exists. Raises SettingsError if nothing can be written there: each
    worker would end for that, and be started again for ever."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(
            f"{variable(field)} must be a folder that this user may write to, got {folder} "
            f"({error.strerror}); give access, or name another one"
        ) from error


def decoded_by_forks(settings: Settings, manifests: Iterable[Manifest]) -> bool:
    """Whether a worker will start a process that loads models and whose forks decode."""
    by_forks = settings.decode_in == "processes" and settings.preset == "throughput"
    return by_forks and any(manifest.task == "translate" for manifest in manifests)


def refuse(error: ServingError) -> NoReturn:
    """End the process with the error in one line on stderr."""
    print(f"macaron: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    raise SystemExit(1)
