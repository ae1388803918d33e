"""Loads the bundles that are not served yet."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from serving.bundle.manifest import DECODED, Manifest
from serving.encoding.presets import load_reader
from serving.encoding.reader import TextReader
from serving.errors import BundleError
from serving.generation.generator import Generator
from serving.generation.presets import load_generator
from serving.processes.generator import IsolatedGenerator
from serving.processes.presets import DecodingProcesses, load_translator
from serving.processes.reader import IsolatedReader
from serving.server.http.settings import Settings
from serving.server.models.manifests import read_manifests
from serving.translation.scheduler import TranslationBundle

AnyGenerator = Generator | IsolatedGenerator
AnyReader = TextReader | IsolatedReader
AnyBundle = TranslationBundle | AnyGenerator | AnyReader


def decoding_processes(settings: Settings) -> DecodingProcesses:
    """The decoding processes according to the settings; none starts before it is needed."""
    return DecodingProcesses(settings.preset, settings.threads)


def load_bundles(
    settings: Settings,
    served: Collection[Manifest] = (),
    processes: DecodingProcesses | None = None,
) -> list[AnyBundle]:
    """Load and check every bundle except those whose manifests are `served` already. What decodes
    in processes is loaded by `processes`, or by processes of their own.

    Raises BundleError as `read_manifests` does, and for a bundle that cannot be used.
    """
    processes = processes or decoding_processes(settings)
    return [
        load_bundle(folder, manifest, settings, processes)
        for folder, manifest in read_manifests(settings).items()
        if manifest not in served
    ]


def load_bundle(
    folder: Path, manifest: Manifest, settings: Settings, processes: DecodingProcesses
) -> AnyBundle:
    """Load and check a bundle. Raises BundleError if it cannot be used."""
    try:
        isolated, limits = settings.decode_in == "processes", settings.batch_limits(manifest.target)
        if manifest.task not in DECODED:
            if isolated:
                return processes.load_reader(folder)
            return load_reader(folder, settings.preset, settings.threads)
        if manifest.task == "generate":
            if isolated:
                return processes.load_generator(folder, limits)
            return load_generator(folder, settings.preset, settings.threads, limits)
        if isolated:
            return processes.load(folder, limits)
        return load_translator(folder, settings.preset, settings.threads, limits)
    except BundleError:
        raise
    except Exception as error:  # a damaged file may make a library raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{folder}: the bundle cannot be loaded: {reason}") from error
