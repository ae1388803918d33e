"""Tries a bundle in a separate process."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from serving.bundle.folder import read_manifest
from serving.bundle.manifest import DECODED
from serving.encoding.reader import TextReader
from serving.errors import BundleError
from serving.generation.generator import Generator
from serving.resident import resident_bytes
from serving.search.sampling_options import GenerationOptions
from serving.translation.translator import Translator


def try_bundle(folder: Path) -> int:
    """Load a bundle and decode with it; returns the memory that this took, in bytes.

    The process is new, because memory freed earlier in this one would distort the result.

    Raises:
        BundleError: the bundle is unusable.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        try:
            return executor.submit(_decode, folder).result()
        except BrokenProcessPool as error:
            raise BundleError(f"{folder}: the process that loaded the bundle ended") from error


def _decode(folder: Path) -> int:
    before = resident_bytes()
    task = read_manifest(folder).task
    if task not in DECODED:
        TextReader(folder).read(["Test."])
    elif task == "generate":
        Generator(folder).generate("Test", GenerationOptions(max_length=8))
    else:
        Translator(folder).translate("Test.")
    return resident_bytes() - before
