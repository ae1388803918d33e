"""This project's own operators for ONNX Runtime: compiled once for a machine, with its compiler,
or beforehand for images that have none (`python -m serving.runtime.kernels`).

Without them every bundle decodes the same, a little more slowly: see docs/background/engine.md.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.errors import SettingsError

SWITCH = "MACARON_NATIVE_KERNELS"
"""The environment variable that turns them off."""
SHIPPED = Path(__file__).parents[1] / "native" / "built"
"""Where `ship_libraries` puts what an image brings along."""
_SOURCES = Path(__file__).parents[1] / "native"
_COMPILERS = ("c++", "g++", "clang++")
# Hidden, or a process that loads two libraries would have one of what is inline in both.
_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")
_ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math")  # neither changes a result
_TIMEOUT_S = 300
# What is shipped is for two levels of the x86-64 psABI, the best first: each with what it asks for
# in Linux's words.
_AVX2 = "avx2 bmi1 bmi2 f16c fma abm movbe"
_LEVELS = {
    "x86-64-v4": f"{_AVX2} avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": _AVX2,
}

logger = logging.getLogger(__name__)


@functools.cache
def native_library() -> Path | None:
    """The compiled operators; None where they are turned off or cannot be compiled.

    One that was shipped comes first, where it runs on this processor. What is compiled stays in
    the user's cache folder, by everything that it depends on. Raises SettingsError where the
    switch is neither on nor off.
    """
    switch = os.environ.get(SWITCH, "").strip().lower() or "on"
    if switch not in ("on", "off"):
        raise SettingsError(f"{SWITCH} must be on or off, got {switch!r}")
    if switch == "off":
        return None
    shipped = shipped_library(SHIPPED)
    if shipped is not None:
        return shipped
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
    known = _digest(compiler, "native", platform.machine(), _processor())
    library = folder / f"kernels-{known}.so"
    if not library.is_file():
        _compile(compiler, "native", library)
    return library


def ship_libraries(compiler: str, folder: Path) -> list[Path]:
    """Compile the operators into a folder for x86-64 processors with AVX-512 and for those with
    AVX2; nothing for other machines.

    Raises OSError and subprocess.SubprocessError.
    """
    if platform.machine() != "x86_64":
        return []
    libraries = {level: _shipped(folder, level) for level in _LEVELS}
    for level, library in libraries.items():
        _compile(compiler, level, library)
    return list(libraries.values())


def shipped_library(folder: Path) -> Path | None:
    """The best that `ship_libraries` made in a folder of these sources and that runs here."""
    found = set(_processor().split())
    for level, wanted in _LEVELS.items():
        library = _shipped(folder, level)
        if found.issuperset(wanted.split()) and library.is_file():
            return library
    return None


def _shipped(folder: Path, level: str) -> Path:
    return folder / f"kernels-{level}-{_digest(level)}.so"


def _digest(*parts: str) -> str:
    """Of the sources, the flags and whatever else a library depends on."""
    known = hashlib.sha256()
    for part in (*parts, *_FLAGS, *_ARITHMETIC):
        known.update(part.encode() + b"\0")
    for file in sorted(file for file in _SOURCES.iterdir() if file.is_file()):
        known.update(file.read_bytes())
    return known.hexdigest()[:16]


def _compile(compiler: str, processor: str, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    # Others may compile at the same time: whoever is last puts the same thing there.
    with tempfile.TemporaryDirectory(dir=library.parent) as place:
        made = Path(place) / library.name
        command = [
            compiler,
            *_FLAGS,
            *_ARITHMETIC,
            f"-march={processor}",
            "-o",
            str(made),
            str(_SOURCES / "operators.cpp"),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
        made.replace(library)
    logger.info("native kernels compiled: %s", library)


def _processor() -> str:
    """What the compiler may make use of: code for one processor need not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def main() -> int:
    """Compile what an image without a compiler is to bring along; prints the files."""
    compiler = find_compiler(os.environ)
    if compiler is None:
        print(f"error: no C++ compiler (CXX, {', '.join(_COMPILERS)})", file=sys.stderr)
        return 1
    try:
        libraries = ship_libraries(compiler, SHIPPED)
    except subprocess.CalledProcessError as error:
        print(f"error: {compiler} failed:\n{error.stderr}", file=sys.stderr)
        return 1
    lines = [str(library) for library in libraries]
    print("\n".join(lines) or f"no library is shipped for {platform.machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
