"""Writes files completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from serving.errors import InvalidOptionError


def check_target(source: Path, target: Path, *, force: bool) -> None:
    """Raise InvalidOptionError if the target is the source, or if it exists and `force` is not
    set."""
    if target.exists() and source.exists() and target.samefile(source):
        raise InvalidOptionError(
            f"the output must not be the input, got {target} for both; name another file",
            parameter="output",
        )
    if target.is_dir():
        raise InvalidOptionError(
            f"the output of a file must be a file, got the folder {target}", parameter="output"
        )
    if target.exists() and not force:
        raise InvalidOptionError(
            f"{target} exists; name another file, or replace it with --force (force=True)",
            parameter="output",
        )


def write_whole(target: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it, which is removed after an error."""
    temporary = target.with_name(f".{target.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
