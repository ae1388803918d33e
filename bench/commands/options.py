"""Reads the options of a verb and checks them before the work starts."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from serving.bundle.folder import parse_manifest
from serving.threads import default_threads

MAX_BATCH = 1024
"""Largest number of sentences in one call."""
_PROGRAM = str(__package__).removesuffix(".commands")


def cores_of(threads: int | None) -> int:
    """The number of cores to use, by default all; raises BenchError if there are fewer."""
    available = default_threads()
    if threads is None:
        return available
    if not 1 <= threads <= available:
        raise BenchError(f"--threads must be in [1, {available}] on this machine, got {threads}")
    return threads


def at_least_one(name: str, value: int) -> int:
    """The value of an option; raises BenchError below 1."""
    if value < 1:
        raise BenchError(f"{name} must be >= 1, got {value}")
    return value


def numbers(name: str, text: str, highest: int) -> tuple[int, ...]:
    """Parse numbers separated by commas; raises BenchError if one is not in [1, highest]."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(1 <= number <= highest for number in found):
        raise BenchError(
            f"{name} must be numbers in [1, {highest}] separated by commas, got {text!r}"
        )
    return found


def named_paths(option: str, texts: Sequence[str]) -> dict[str, Path]:
    """Read options of the form NAME=PATH; raises BenchError for another form, and for a name that
    is given twice."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise BenchError(f"{option} must be NAME=PATH, got {text!r}")
        if name in found:
            raise BenchError(f"every {option} must have a name of its own, got {name!r} twice")
        found[name] = Path(path)
    return found


def check_file(option: str, path: Path | None) -> None:
    """Make the folder of a file that is to be written; raises BenchError, before the work, if the
    file cannot be."""
    if path is None:
        return
    if path.is_dir():
        raise BenchError(f"{option} must name a file, {path} is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BenchError(
            f"{option} {path}: cannot be written ({error.strerror}); name another place"
        ) from error


def language_pair(bundle: Path, given: str) -> tuple[str, str]:
    """The source and the target in the value of `--languages`; raises BenchError, before the work,
    for a pair that the bundle does not translate."""
    source, _, target = given.partition("-")
    languages = parse_manifest(bundle).languages
    if not languages.translates(source, target):
        there = languages.listing or "nothing"
        raise BenchError(
            f"--languages must be SOURCE-TARGET of {bundle}, which translates {there}, got "
            f"{given!r}"
        )
    return source, target


def read_texts(file: Path) -> list[str]:
    """The lines of a file that are not blank; raises BenchError if there are none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--texts {file}: cannot be read: {error}") from error
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise BenchError(f"--texts {file}: it holds no text")
    return texts


def command_of(options: argparse.Namespace) -> str:
    """The whole command with every option that decides the result, written out."""
    words = ["python", "-m", _PROGRAM, options.verb]
    for name, given in vars(options).items():
        if given is True:
            words.append(f"--{name.replace('_', '-')}")
        elif name not in ("verb", "json") and given is not None and given is not False:
            for value in given if isinstance(given, list) else [given]:
                words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
