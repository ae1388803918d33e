"""This project's own operators for ONNX Runtime. They are compiled once on a machine, with its
compiler, or beforehand for any machine (`python -m serving.runtime.kernels`), as in wheels and
images.

Without them every bundle decodes the same, a little more slowly: see docs/background/engine.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from serving.errors import SettingsError
from serving.folders import cache_folder

SWITCH = "MACARON_NATIVE_KERNELS"
"""The environment variable that turns the operators off."""
SHIPPED = Path(__file__).parents[1] / "native" / "built"
"""The folder in which wheels and images have the library that `ship_library` makes."""
SOURCES = Path(__file__).parents[1] / "native"
"""The folder with the source code of the operators."""
_OPERATORS = SOURCES / "operators.cpp"
_COMPILERS = ("c++", "g++", "clang++")
# Hidden symbols; a process with two libraries would otherwise share their inline functions.
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread")
_ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math")  # neither changes a result
# Of one level of several in a library: all that is inline goes into the object for good, and is not
# unique, or the linker would give every level that of the first.
_ALONE = ("-r", "-nostdlib", "-Wl,--force-group-allocation", "-fno-gnu-unique")
_TIMEOUT_S = 300
LEVELS: dict[str, tuple[str, ...]] = {
    "x86_64": ("x86-64-v4", "x86-64-v3", "x86-64"),
    "aarch64": ("armv8.2-a+dotprod+i8mm", "armv8.2-a+dotprod", "armv8-a"),
}
"""Values of -march for which the shipped library is compiled, by machine; see
serving/native/levels.cpp."""

logger = logging.getLogger(__name__)


@functools.cache
def native_library() -> Path | None:
    """The compiled operators. None if they are turned off or cannot be compiled, or if the system
    is not Linux.

    A shipped library comes first. A compiled one stays in the user's cache folder, under a name
    made from everything that it depends on. Raises SettingsError if the switch is neither on nor
    off.
    """
    if not kernels_wanted() or sys.platform != "linux":
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
        return build_library(compiler, cache_folder(os.environ), processor_features())
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        logger.warning(
            "native kernels are not used: %s failed: %s; decoding is slower",
            compiler,
            " ".join(output.split())[:500],
        )
        return None


@contextlib.contextmanager
def compiled_meanwhile() -> Iterator[None]:
    """Compile the operators while the block runs, for a task of several seconds at whose end graphs
    are loaded. A library that is there already costs nothing."""

    def compile_them() -> None:
        with contextlib.suppress(SettingsError):  # the first graph that is loaded raises it
            native_library()

    thread = threading.Thread(target=compile_them, name="kernels")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def find_compiler(environment: Mapping[str, str]) -> str | None:
    """CXX, or a C++ compiler on the PATH."""
    names = (environment["CXX"],) if environment.get("CXX") else _COMPILERS
    return next(filter(None, map(shutil.which, names)), None)


def build_library(compiler: str, folder: Path, processor: str) -> Path:
    """Compile the operators into a folder, unless it has a library for this processor, as described
    by `processor_features`. Of several processes that need it at the same time one compiles, and
    the others wait.

    Raises OSError and subprocess.SubprocessError.
    """
    known = _digest(SOURCES, compiler, "native", platform.machine(), processor)
    library = folder / f"kernels-{known}.so"
    if library.is_file():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder):
        if not library.is_file():
            with _place_for(library) as made:
                flags = (*_FLAGS, *_ARITHMETIC, "-shared", "-march=native")
                _run(compiler, *flags, _OPERATORS, to=made)
    return library


def ship_library(compiler: str, folder: Path) -> Path | None:
    """Compile the operators into a folder, for all processors of the machine that the compiler
    builds for: x86-64 or ARM of 64 bits. It is one library, which chooses its code at run time.

    A cross-compiler makes the library of another machine. Returns None for other machines and
    systems. Raises OSError and subprocess.SubprocessError.
    """
    if sys.platform != "linux":
        return None
    machine = _run(compiler, "-dumpmachine").partition("-")[0]
    levels = LEVELS.get(machine, ())
    if not levels:
        return None
    library = _shipped(folder, SOURCES, machine)
    with _place_for(library) as made, ThreadPoolExecutor() as pool:
        objects = pool.map(lambda level: compile_level(compiler, level, made.parent), levels)
        _run(compiler, *_FLAGS, "-shared", "-s", SOURCES / "levels.cpp", *objects, to=made)
    return library


def shipped_library(folder: Path, sources: Path = SOURCES) -> Path | None:
    """The library that `ship_library` made of these sources in a folder, if it can be loaded
    here."""
    library = _shipped(folder, sources, platform.machine())
    if not library.is_file():
        return None
    try:
        ctypes.CDLL(str(library))
    except OSError as error:  # of a newer system
        logger.warning("the native kernels that were shipped cannot be loaded: %s", error)
        return None
    return library


def kernels_wanted() -> bool:
    """Whether the switch is on. Raises SettingsError if it is neither on nor off."""
    switch = os.environ.get(SWITCH, "").strip().lower() or "on"
    if switch not in ("on", "off"):
        raise SettingsError(f"{SWITCH} must be on or off, got {switch!r}")
    return switch == "on"


def _shipped(folder: Path, sources: Path, machine: str) -> Path:
    """The file of the library for a machine, whose name begins with `kernels-MACHINE-`."""
    known = _digest(sources, machine, *LEVELS.get(machine, ()), *_ALONE)
    return folder / f"kernels-{machine}-{known}.so"


def _digest(sources: Path, *parts: str) -> str:
    """First 16 hexadecimal digits of a SHA-256 of the sources, the flags and `parts`, which are the
    other things that a library depends on."""
    known = hashlib.sha256()
    for part in (*parts, *_FLAGS, *_ARITHMETIC):
        known.update(part.encode() + b"\0")
    for file in sorted(file for file in sources.iterdir() if file.is_file()):
        known.update(file.read_bytes())
    return known.hexdigest()[:16]


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles into a folder. Where it has no locks, or another
    compiler hangs, several do so at once: all make the same file, and the last one stays."""
    lock = FileLock(folder / "kernels.lock", timeout=_TIMEOUT_S)
    try:
        lock.acquire()
    except (OSError, NotImplementedError):  # filelock's Timeout is an OSError
        yield
        return
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _place_for(library: Path) -> Iterator[Path]:
    """Yield a file to write the library to, in a temporary folder of its own; it is moved to its
    place afterwards, so that no process loads half of it."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as place:
        made = Path(place) / library.name
        yield made
        made.replace(library)
    logger.info("native kernels compiled: %s", library)


def compile_level(compiler: str, level: str, folder: Path) -> Path:
    """Compile the operators for one level of processors, as an object file that exports only its
    entry function."""
    made, entry = folder / f"{level}.o", entry_of(level)
    flags = (*_FLAGS, *_ARITHMETIC, *_ALONE, f"-march={level}", f"-DMACARON_ENTRY={entry}")
    _run(compiler, *flags, _OPERATORS, to=made)
    objcopy = _run(compiler, "-print-prog-name=objcopy").strip()
    _run(objcopy, f"--keep-global-symbol={entry}", made)
    return made


def entry_of(level: str) -> str:
    """The name of the function by which a level registers its operators."""
    return "register_" + re.sub(r"\W", "_", level)


def _run(program: str, *arguments: str | Path, to: Path | None = None) -> str:
    command = [program, *map(str, arguments), *(("-o", str(to)) if to else ())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
    return done.stdout


def processor_features() -> str:
    """The processor's features, in the system's words and separated by spaces. The compiler may use
    all of them, so the code need not run on another processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def main(words: list[str] | None = None) -> int:
    """Compile the library that runs without a compiler, and print its file.

    It goes into the folder that `words` names, or else to where this package looks for it.
    """
    words = sys.argv[1:] if words is None else words
    if not kernels_wanted():
        print(f"no library is made: {SWITCH} is off")
        return 0
    compiler = find_compiler(os.environ)
    if compiler is None:
        print(f"error: no C++ compiler (CXX, {', '.join(_COMPILERS)})", file=sys.stderr)
        return 1
    try:
        library = ship_library(compiler, Path(words[0]) if words else SHIPPED)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        print(f"error: {compiler} failed:\n{output}", file=sys.stderr)
        return 1
    print(library or f"no library is shipped for the machine that {compiler} builds for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
