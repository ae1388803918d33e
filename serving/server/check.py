"""Checks whether the server can start, as far as that takes no time: settings, manifests, hashes,
the store.

Nothing is loaded: that is done once, by the process that serves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NoReturn

from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.errors import ServingError
from serving.search.options import parse_options
from serving.server.access.keys import Keys
from serving.server.http.settings import Settings
from serving.server.models.manifests import check_defaults, read_manifests
from serving.server.work.stored.store import open_store


def check(settings: Settings) -> list[Manifest]:
    """Read the manifests of all bundles. Raises ServingError if one is missing, damaged or newer
    than this version, if its options exceed a limit, or if the keys or the store are unusable."""
    Keys(settings)
    manifests = [read_manifest(folder) for folder in read_manifests(settings)]
    for manifest in manifests:
        if manifest.task == "translate":
            check_defaults(manifest.name, parse_options(manifest.search), settings)
    store = open_store(settings)
    if store is not None:
        store.close()
    return manifests


def decoded_by_forks(settings: Settings, manifests: Iterable[Manifest]) -> bool:
    """Whether a worker will start a process that loads models and whose forks decode."""
    by_forks = settings.decode_in == "processes" and settings.preset == "throughput"
    return by_forks and any(manifest.task == "translate" for manifest in manifests)


def refuse(error: ServingError) -> NoReturn:
    """End the process with the error in one line on stderr."""
    print(f"macaron: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    raise SystemExit(1)
