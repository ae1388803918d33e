"""This project's own operators for ONNX Runtime: compiled once for a machine, with its compiler.

Without them every bundle decodes the same, a little more slowly: see docs/engine.md.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.errors import SettingsError

SWITCH = "MACARON_NATIVE_KERNELS"
"""The environment variable that turns them off."""
_SOURCES = Path(__file__).parent / "native"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC")
_ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math")  # neither changes a result
_TIMEOUT_S = 300

logger = logging.getLogger(__name__)


@functools.cache
def native_library() -> Path | None:
    """The compiled operators; None where they are turned off or cannot be compiled.

    What was compiled stays in the user's cache folder, by everything that it depends on. Raises
    SettingsError where the switch is neither on nor off.
    """
    switch = os.environ.get(SWITCH, "").strip().lower() or "on"
    if switch not in ("on", "off"):
        raise SettingsError(f"{SWITCH} must be on or off, got {switch!r}")
    if switch == "off":
        return None
    compiler = find_compiler(os.environ)
    if compiler is None:
        logger.warning(
            "native kernels are not used: found no C++ compiler (CXX, %s); decoding is slower",
            ", ".join(_COMPILERS),
        )
        return None
    try:
        return build_library(compiler, cache_folder(os.environ))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        logger.warning(
            "native kernels are not used: %s failed: %s; decoding is slower",
            compiler,
            " ".join(output.split())[:500],
        )
        return None


def find_compiler(environment: Mapping[str, str]) -> str | None:
    """CXX, or a C++ compiler on the PATH."""
    names = (environment["CXX"],) if environment.get("CXX") else _COMPILERS
    return next(filter(None, map(shutil.which, names)), None)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where what was compiled is kept (XDG base directories)."""
    home = environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "macaron"


def build_library(compiler: str, folder: Path) -> Path:
    """Compile the operators into a folder, unless that was done there for such a processor.

    Raises OSError and subprocess.SubprocessError.
    """
    files = sorted(_SOURCES.iterdir())
    known = hashlib.sha256()
    for part in (compiler, *_FLAGS, *_ARITHMETIC, platform.machine(), _processor()):
        known.update(part.encode() + b"\0")
    for file in files:
        known.update(file.read_bytes())
    library = folder / f"kernels-{known.hexdigest()[:16]}.so"
    if library.is_file():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    # Others may compile at the same time: whoever is last puts the same thing there.
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place) / library.name
        command = [
            compiler,
            *_FLAGS,
            *_ARITHMETIC,
            "-o",
            str(made),
            str(_SOURCES / "operators.cpp"),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
        made.replace(library)
    logger.info("native kernels compiled: %s", library)
    return library


def _processor() -> str:
    """What the compiler may make use of: code for one processor need not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
