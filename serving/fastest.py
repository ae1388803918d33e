"""Finds the number of threads that is fastest for a bundle on this machine; tried once, and
stored."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from serving.folders import cache_folder

T = TypeVar("T")

_PROBES = 5
_GAIN = 1.1
"""Factor by which more threads must be faster, because they cost much when other processes need the
processors."""
_KEPT = "threads.json"
_MOST_KEPT = 1000
_KEPT_S = 30 * 24 * 3600
"""Seconds after which a stored number is discarded, because the machine may have been busy."""
_SESSIONS = "programs share work, threads sleep after a millisecond"
"""How graphs use their threads. Numbers that were found with another way are tried anew."""
_MANIFEST = "manifest.json"


def fastest(
    load: Callable[[int], T], probe: Callable[[T], object], threads: int, use: str, bundle: Path
) -> T:
    """Load with 1, 2, 4, ... up to `threads` threads, and return the one with the fastest probe.

    The number is stored in the cache folder, for this `use` of this bundle on this kind of machine,
    and read from there the next time: the bundle is then loaded once, without a trial.
    """
    counts = [1 << n for n in range(threads.bit_length()) if 1 << n < threads] + [threads]
    if len(counts) == 1:
        return load(threads)
    file = cache_folder(os.environ) / _KEPT
    key = _key(threads, use, bundle)
    kept = _read(file).get(key)
    if kept is not None and kept[0] in counts:
        return load(int(kept[0]))
    best, chosen = load(counts[0]), counts[0]
    least = _seconds(best, probe)
    for count in counts[1:]:
        other = load(count)
        seconds = _seconds(other, probe, least / _GAIN)
        if seconds * _GAIN < least:
            best, least, chosen = other, seconds, count
    _keep(file, key, chosen)
    return best


def _seconds(loaded: T, probe: Callable[[T], object], below: float = math.inf) -> float:
    """The median of several probes in seconds. If it cannot be below `below` any more, it is
    infinite, and the remaining probes are skipped."""
    probe(loaded)  # the first call allocates
    times: list[float] = []
    for _ in range(_PROBES):
        if sum(seconds >= below for seconds in times) > _PROBES // 2:
            return math.inf
        start = time.perf_counter()
        probe(loaded)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _key(threads: int, use: str, bundle: Path) -> str:
    """A hash of everything that the number depends on: the bundle, whose manifest has the hashes of
    its files, the machine, the version of the runtime, and how sessions use their threads."""
    manifest = bundle / _MANIFEST
    parts = (
        use,
        str(threads),
        hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.is_file() else str(bundle),
        _processor(Path("/proc/cpuinfo")),
        _runtime_version(),
        _SESSIONS,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _runtime_version() -> str:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return ""


def _processor(file: Path) -> str:
    """The processor with all its features, if Linux reports it; otherwise only its kind."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine() + platform.processor()
    lines = re.findall(r"(?m)^(?:model name|flags|Features|CPU part)\s*:.*$", text)
    return "\n".join(sorted(set(lines))) or platform.machine()


def _read(file: Path) -> dict[str, tuple[int, float]]:
    """The stored numbers of threads, each with the time when it was found, by key. A file that
    cannot be read counts as empty, and old numbers are left out."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        kept = {str(key): (int(count), float(when)) for key, (count, when) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    after = time.time() - _KEPT_S
    return {key: value for key, value in kept.items() if value[1] > after}


def _keep(file: Path, key: str, count: int) -> None:
    """Store a number. If the folder cannot be written to, it is found again the next time."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock"), timeout=10):
            kept = _read(file) | {key: (count, time.time())}
            latest = sorted(kept.items(), key=lambda item: item[1][1])[-_MOST_KEPT:]
            made = file.with_suffix(f".{os.getpid()}")
            made.write_text(json.dumps(dict(latest)), encoding="utf-8")
            os.replace(made, file)
