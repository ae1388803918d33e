"""`macaron doctor`: reports what this machine has for Macaron, and how to add what is missing."""

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
from serving.errors import ServingError, install_command
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
"""Processor flags that affect the speed, in the spelling of Linux."""
_MEMINFO, _MEMORY_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
_LEAST_BYTES = 512 * 2**20
"""A server with one small bundle takes about 300 MiB."""
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_GREETINGS = {"de": "Guten Morgen!", "es": "¡Buenos días!", "fr": "Bonjour à tous !"}
_GREETING = "Good morning!"
_INSTALL = install_command("serve")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    found: str
    advice: str | None = None
    """Advice on what to do about it; None if nothing needs doing."""


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
    """Print the findings; returns 1 if one of them needs action, else 0."""
    options = doctor_parser(prog).parse_args(arguments)
    findings = list(examine(options.bundle))
    well = all(finding.advice is None for finding in findings)
    if options.json:
        print(json.dumps({"ok": well, "findings": [asdict(each) for each in findings]}, indent=2))
    else:
        print("\n".join(_lines(findings, well)))
    return 0 if well else 1


def examine(bundle: Path | None) -> Iterator[Finding]:
    """Check the machine, the installed packages, and a bundle if there is one."""
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    yield processor(cpuinfo())
    yield cores()
    yield memory()
    yield kernels()
    yield runtime()
    yield gpu()
    yield cache(entries(), models_folder())
    folder = Path(os.environ.get("MACARON_BUNDLES") or "models")
    bundle = bundle or first_bundle(folder)
    if bundle is None:
        yield untried(folder)
    else:
        yield trial(bundle)


def processor(info: str) -> Finding:
    """Name and relevant instruction sets, from Linux."""
    flags = {word for line in info.splitlines() if ":" in line for word in line.split()}
    known = [name for name in _INSTRUCTIONS if name in flags]
    return Finding("processor", f"{cpu_name(info)}; {', '.join(known) or platform.machine()}")


def cores() -> Finding:
    """Processors of the machine, and how many this process may use."""
    usable, there = default_threads(), os.cpu_count() or 1
    return Finding("cores", f"{usable} of {there} by affinity and quota of time")


def memory(limit: Path = _MEMORY_LIMIT, meminfo: Path = _MEMINFO) -> Finding:
    """Available memory, and a container's limit, from files of Linux."""
    found = _available(meminfo)
    if found is None:
        return Finding("memory", f"not known on {sys.platform}")
    text = f"{_mib(found)} available"
    try:
        bound = int(limit.read_text())
        found, text = min(found, bound), f"{text}; this container may have {_mib(bound)}"
    except (OSError, ValueError):  # no such file, or "max"
        pass
    few = found < _LEAST_BYTES
    return Finding("memory", text, f"a server takes {_mib(_LEAST_BYTES)} and more" if few else None)


def kernels() -> Finding:
    """Source of the native kernels, if there are any."""
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
        f"the line on stderr says why {compiler} fails; set CXX to another compiler"
        if compiler
        else "install a C++ compiler (apt-get install g++), or a wheel with the kernels"
    )
    return Finding("kernels", "standard operators, which are slower", advice)


def runtime() -> Finding:
    """ONNX Runtime: its version and its providers."""
    packages = [name for name in _RUNTIMES if _version(name)]
    if not packages:
        return Finding("onnxruntime", "not installed", _INSTALL)
    found = " and ".join(f"{name} {_version(name)}" for name in packages)
    if len(packages) > 1:
        return Finding(
            "onnxruntime",
            f"{found}, which overwrite each other",
            f"uninstall both, then install one: {_INSTALL}, or {install_command('serve-cuda')}",
        )
    try:
        import onnxruntime
    except ImportError as error:
        return Finding("onnxruntime", f"{found}, which cannot be loaded: {error}", _INSTALL)
    return Finding(
        "onnxruntime", f"{found} with {', '.join(onnxruntime.get_available_providers())}"
    )


def gpu() -> Finding:
    """The first GPU, from its driver; a GPU is optional."""
    from serving.runtime.gpu.cuda_driver import DriverError, look

    try:
        seen = look()
    except DriverError as error:
        return Finding("gpu", f"none: {error}")
    free = f"{_mib(seen.free_bytes)} of {_mib(seen.total_bytes)} free"
    text = f"{seen.name}, {free}; its driver runs CUDA {seen.cuda[0]}.{seen.cuda[1]}"
    if not _version("onnxruntime-gpu"):
        text += f"; to use it, {install_command('serve-cuda')} in an environment without serve"
    return Finding("gpu", text)


def cache(models: Sequence[Entry], folder: Path) -> Finding:
    """Pulled and imported models in the cache `folder`."""
    size = sum(model.size() for model in models)
    names = f": {', '.join(model.note.name for model in models)}" if models else ""
    return Finding("cache", f"{len(models)} models, {_mib(size)}, in {folder}{names}")


def first_bundle(folder: Path) -> Path | None:
    """The first translation bundle in a folder, or else the first bundle; None if there is none."""
    found = [file.parent for file in sorted(folder.glob(f"*/{MANIFEST}"))]
    return min(found, key=lambda bundle: not _translates(bundle), default=None)


def untried(folder: Path) -> Finding:
    """That no bundle was run; a wrong MACARON_BUNDLES needs action."""
    wrong = "set MACARON_BUNDLES to a folder of bundles" if folder != Path("models") else None
    return Finding(
        "check", f"{folder} has no bundle to try; name one (`macaron doctor BUNDLE`)", wrong
    )


def trial(bundle: Path) -> Finding:
    """Load a bundle and run it."""
    if not (bundle / MANIFEST).is_file():
        return Finding("check", f"{bundle} is not a bundle", f"name a folder with a {MANIFEST}")
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
    """Load a bundle; returns a function that runs it and describes the result."""
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
