"""Imports by `export import` in a process of its own. It needs PyTorch, which serving never loads,
and frees its memory when it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from serving.errors import ModelNameError, install_command

_EXPORT = ".".join([*__name__.split(".")[:-3], "export"])
"""The name of the package that imports. Packages are renamed in a wheel."""
PLACE = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder that contains the packages."""
_NEEDED = ("torch", "onnxscript", "safetensors")
_ERROR = b"error: "


def import_bundle(source: str, bundle: Path, precision: str) -> None:
    """Make the bundle of a checkpoint, given as a name or an absolute path.

    Messages of the import go to stderr. Raises ModelNameError with the import's error message if it
    fails.
    """
    command = [
        *(sys.executable, "-m", _EXPORT, "import", source, str(bundle)),
        *("--precision", precision, "--force"),
    ]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    bars = {"TQDM_POSITION": "-1"} if sys.stderr.isatty() else {}
    environment = {**os.environ, **bars}  # as a terminal would show them
    with subprocess.Popen(command, cwd=PLACE, env=environment, **pipes) as process:  # type: ignore[call-overload]
        assert process.stderr is not None
        reason = _passed_on(process.stderr)
    if process.returncode:
        raise ModelNameError(reason or f"{source}: the import ended with {process.returncode}")


def check_installed(source: str) -> None:
    """Raise ModelNameError if a package that imports need is not installed."""
    missing = next((name for name in _NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise ModelNameError(
            f"{source}: is not a bundle, and importing it needs the Python package {missing!r}; "
            f"install it with: {install_command('export')}"
        )


def _passed_on(pipe: IO[bytes]) -> str:
    """Forward a stream to stderr as it arrives; returns its error line."""
    reason = b""
    for line in _lines(pipe):
        if line.startswith(_ERROR):
            reason = line
        else:
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
    return reason.removeprefix(_ERROR).decode(errors="replace").strip()


def _lines(pipe: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends, including those of progress bars, which end in a carriage return."""
    rest = b""
    while chunk := pipe.read1(1 << 16):  # type: ignore[attr-defined]
        *whole, rest = re.split(rb"(?<=[\r\n])", rest + chunk)
        yield from whole
    if rest:
        yield rest
