"""`macaron doctor`: what this machine has for Macaron, and what to do about what it lacks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from bench.machine.processor import cpu_name, cpuinfo
from serving.bundle.folder import MANIFEST
from serving.errors import ServingError
from serving.hub.cache import Entry, entries, models_folder
from serving.runtime.kernels import SHIPPED, SWITCH, find_compiler, native_library
from serving.threads import default_threads

_INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
)
"""In Linux's words: those that make a difference here."""
_MEMINFO, _MEMORY_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
_LEAST_BYTES = 512 * 2**20
"""A server with one small bundle takes some 300 MiB."""
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_GREETINGS = {"de": "Guten Morgen!", "es": "¡Buenos días!", "fr": "Bonjour à tous !"}
_GREETING = "Good morning!"
_INSTALL = "pip install 'macaron[serve]'"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    found: str
    advice: str | None = None
    """What to do about it; None where nothing is to be done."""


def doctor_parser(prog: str) -> argparse.ArgumentParser:
    """The options of `macaron doctor`."""
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument(
        "bundle",
        type=Path,
        nargs="?",
        help="a bundle that is tried (default: the first in MACARON_BUNDLES, or in models)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: list[str], prog: str) -> int:
    """Print what was found; returns 1 where something is to be done about it, else 0."""
    options = doctor_parser(prog).parse_args(arguments)
    findings = list(examine(options.bundle))
    well = all(finding.advice is None for finding in findings)
    if options.json:
        print(json.dumps({"ok": well, "findings": [asdict(each) for each in findings]}, indent=2))
    else:
        print("\n".join(_lines(findings, well)))
    return 0 if well else 1


def examine(bundle: Path | None) -> Iterator[Finding]:
    """Look at the machine, at what is installed, and at a bundle if there is one."""
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    yield processor(cpuinfo())
    yield cores()
    yield memory()
    yield kernels()
    yield runtime()
    yield gpu()
    yield cache(entries(), models_folder())
    bundle = bundle or first_bundle(Path(os.environ.get("MACARON_BUNDLES") or "models"))
    if bundle is None:
        yield Finding("check", "no bundle was tried: name one (`macaron doctor BUNDLE`)")
    else:
        yield trial(bundle)


def processor(info: str) -> Finding:
    """Its name, and the instructions that matter, of what Linux says of it."""
    flags = {word for line in info.splitlines() if ":" in line for word in line.split()}
    known = [name for name in _INSTRUCTIONS if name in flags]
    return Finding("processor", f"{cpu_name(info)}; {', '.join(known) or platform.machine()}")


def cores() -> Finding:
    """Those of the machine, and how many this process may use."""
    usable, there = default_threads(), os.cpu_count() or 1
    return Finding("cores", f"{usable} of {there} by affinity and quota of time")


def memory(limit: Path = _MEMORY_LIMIT, meminfo: Path = _MEMINFO) -> Finding:
    """What is free, and a container's limit, of files of Linux."""
    found = _available(meminfo)
    if found is None:
        return Finding("memory", f"not known on {sys.platform}")
    told = f"{_mib(found)} available"
    try:
        bound = int(limit.read_text())
        found, told = min(found, bound), f"{told}; this container may have {_mib(bound)}"
    except (OSError, ValueError):  # no such file, or "max"
        pass
    few = found < _LEAST_BYTES
    return Finding("memory", told, f"a server takes {_mib(_LEAST_BYTES)} and more" if few else None)


def kernels() -> Finding:
    """Where the native kernels come from, if there are any."""
    try:
        library = native_library()
    except ServingError as error:
        return Finding("kernels", str(error), f"set {SWITCH} to on, or unset it")
    if library is not None:
        origin = "came with the package" if library.parent == SHIPPED else "compiled here"
        return Finding("kernels", f"native, {origin}: {library}")
    if sys.platform != "linux":
        return Finding("kernels", f"standard operators; on {sys.platform} there are no others")
    if os.environ.get(SWITCH):
        return Finding("kernels", f"standard operators, as {SWITCH} is off", f"unset {SWITCH}")
    compiler = find_compiler(os.environ)
    advice = (
        f"see why {compiler} fails, in the line on stderr"
        if compiler
        else "install a C++ compiler (apt-get install g++), or a wheel that has the kernels"
    )
    return Finding("kernels", "standard operators, which are slower", advice)


def runtime() -> Finding:
    """ONNX Runtime: its version, and what it computes by."""
    packages = [name for name in _RUNTIMES if _version(name)]
    if not packages:
        return Finding("onnxruntime", "not installed", _INSTALL)
    found = " and ".join(f"{name} {_version(name)}" for name in packages)
    if len(packages) > 1:
        return Finding(
            "onnxruntime",
            f"{found}, which overwrite each other",
            f"uninstall both, then install one: {_INSTALL}, or macaron[serve-cuda]",
        )
    try:
        import onnxruntime
    except ImportError as error:
        return Finding("onnxruntime", f"{found}, which cannot be loaded: {error}", _INSTALL)
    return Finding(
        "onnxruntime", f"{found} with {', '.join(onnxruntime.get_available_providers())}"
    )


def gpu() -> Finding:
    """The first GPU, as its driver knows it. None is needed."""
    from serving.runtime.gpu.cuda_driver import DriverError, look

    try:
        seen = look()
    except DriverError as error:
        return Finding("gpu", f"none: {error}")
    free = f"{_mib(seen.free_bytes)} of {_mib(seen.total_bytes)} free"
    told = f"{seen.name}, {free}; its driver runs CUDA {seen.cuda[0]}.{seen.cuda[1]}"
    if not _version("onnxruntime-gpu"):
        told += "; bundles for a GPU need macaron[serve-cuda]"
    return Finding("gpu", told)


def cache(models: Sequence[Entry], folder: Path) -> Finding:
    """Models that were pulled or imported into the cache `folder`."""
    size = sum(model.size() for model in models)
    names = f": {', '.join(model.note.name for model in models)}" if models else ""
    return Finding("cache", f"{len(models)} models, {_mib(size)}, in {folder}{names}")


def first_bundle(folder: Path) -> Path | None:
    """The first bundle in a folder that translates, or else the first one; None where there is
    none."""
    found = [file.parent for file in sorted(folder.glob(f"*/{MANIFEST}"))]
    return min(found, key=lambda bundle: not _translates(bundle), default=None)


def trial(bundle: Path) -> Finding:
    """Load a bundle and have it do something."""
    if not (bundle / MANIFEST).is_file():
        return Finding("check", f"{bundle} is no bundle", f"name a folder with a {MANIFEST}")
    start = time.perf_counter()
    try:
        work = _worker(bundle)
        loaded = time.perf_counter()
        done = work()
    except ModuleNotFoundError as error:
        return Finding("check", f"{bundle}: the package {error.name!r} is missing", _INSTALL)
    except ServingError as error:
        return Finding("check", f"{bundle} does not work", str(error))
    took = f"loaded in {loaded - start:.1f} s, answered in {time.perf_counter() - loaded:.2f} s"
    return Finding("check", f"{bundle}: {done}; {took}")


def _worker(bundle: Path) -> Callable[[], str]:
    """Load a bundle; what is returned has it work, and says what came out."""
    from serving.bundle.folder import read_manifest
    from serving.encoding.reader import TextReader
    from serving.generation.generator import Generator
    from serving.translation.translator import Translator

    task = read_manifest(bundle).task
    if task == "translate":
        translator = Translator(bundle)
        source, target = translator.manifest.languages.trained[0]
        greeting = _GREETINGS.get(source, _GREETING)
        return lambda: (
            f"{greeting!r} is "
            f"{translator.translate(greeting, source=source, target=target)[0].text!r}"
        )
    if task == "generate":
        generator = Generator(bundle)
        return lambda: f"{_GREETING!r} goes on with {generator.generate(_GREETING)[0][0].text!r}"
    reader = TextReader(bundle)
    return lambda: f"{_GREETING!r} was read as {reader.read([_GREETING]).shape[-1]} numbers"


def _translates(bundle: Path) -> bool:
    return '"task": "translate"' in (bundle / MANIFEST).read_text(encoding="utf-8")


def _lines(findings: list[Finding], well: bool) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        yield f"{finding.name:<{width}}  {finding.found}"
        if finding.advice is not None:
            yield f"{'':<{width}}  -> {finding.advice}"
    yield "all is well" if well else "lines with an arrow say what to do"


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _mib(size: int) -> str:
    return f"{size // 2**20} MiB"
