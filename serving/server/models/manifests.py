"""Reads the manifests in the folder of bundles; loads nothing."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.folder import find_bundles, parse_manifest
from serving.bundle.manifest import Manifest
from serving.errors import BundleError, SettingsError
from serving.search.options import SearchOptions
from serving.server.http.settings import Settings, variable


def read_manifests(settings: Settings) -> dict[Path, Manifest]:
    """The manifest of every bundle, by its folder.

    Raises BundleError, in one line, for a folder without bundles, a manifest that cannot be read,
    and two bundles with the same name.
    """
    manifests: dict[Path, Manifest] = {}
    names: set[str] = set()
    for folder in find_bundles(settings.bundles):
        manifest = manifests[folder] = parse_manifest(folder)
        if manifest.name in names:
            raise BundleError(
                f"{folder}: another bundle is named {manifest.name!r} too; export one of them "
                "under another name"
            )
        names.add(manifest.name)
    if not manifests:
        found = "contains no bundle" if settings.bundles.is_dir() else "is not a folder"
        raise BundleError(
            f"{settings.bundles} {found}; set {variable('bundles')} to the folder that holds the "
            "bundle folders, or make a bundle with `python -m macaron export bundle`"
        )
    return manifests


def check_defaults(name: str, options: SearchOptions, settings: Settings) -> None:
    """Raise SettingsError if a bundle's own default options exceed a limit."""
    for option, limit in (
        ("beam_size", "max_beam_size"),
        ("num_hypotheses", "max_num_hypotheses"),
    ):
        if getattr(options, option) > getattr(settings, limit):
            raise SettingsError(
                f"{variable(limit)} must be at least {getattr(options, option)}, the default "
                f"{option} of bundle {name!r}, got {getattr(settings, limit)}"
            )
