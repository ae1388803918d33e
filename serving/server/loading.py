"""The folder of bundles: reads what lies in it, and loads what is not served yet."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from serving.bundle.manifest import DECODED, Manifest, find_bundles, parse_manifest
from serving.encoding.loading import load_reader
from serving.encoding.reader import TextReader
from serving.errors import BundleError
from serving.generation.generator import Generator
from serving.generation.loading import load_generator
from serving.server.settings import Settings, variable
from serving.translation.loading import load_isolated_translator, load_translator
from serving.translation.scheduler import TranslationModel


def read_manifests(settings: Settings) -> dict[Path, Manifest]:
    """The manifest of every bundle, by its folder.

    Raises BundleError, in one line, for a folder without bundles, a manifest that cannot be read
    and two bundles of one name.
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
        found = "has no bundle in it" if settings.bundles.is_dir() else "is no folder"
        raise BundleError(
            f"{settings.bundles} {found}; set {variable('bundles')} to the folder that holds the "
            "bundle folders, or make a bundle with `python -m macaron export bundle`"
        )
    return manifests


def load_bundles(
    settings: Settings, served: Collection[Manifest] = ()
) -> list[TranslationModel | Generator | TextReader]:
    """Load and check every bundle but those whose manifests are `served` already.

    Raises BundleError as `read_manifests` does, and for a bundle that cannot be used.
    """
    return [
        _load(folder, manifest, settings)
        for folder, manifest in read_manifests(settings).items()
        if manifest not in served
    ]


def _load(
    folder: Path, manifest: Manifest, settings: Settings
) -> TranslationModel | Generator | TextReader:
    try:
        if manifest.task not in DECODED:
            return load_reader(folder, settings.preset, settings.threads)
        if manifest.task == "generate":
            return load_generator(folder, settings.preset, settings.threads)
        isolated = settings.decode_in == "processes"
        load = load_isolated_translator if isolated else load_translator
        return load(folder, settings.preset, settings.threads, settings.batch_limits)
    except BundleError:
        raise
    except Exception as error:  # whatever a damaged file makes a library raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{folder}: the bundle cannot be loaded: {reason}") from error
