"""Checks whether a file or folder may replace what exists already."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from training.errors import ConfigError


def check_free(out: Path, read: Iterable[Path] = (), *, force: bool) -> None:
    """Raise ConfigError if `out` exists already and `force` is not given, or if it cannot be
    replaced because a file or folder to `read` would be deleted with it."""
    lost = loses(out, read)
    if lost is not None:
        raise ConfigError(
            f"{out}: {lost}, which is read, and would be deleted to make room; name another place"
        )
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already; give --force to replace it")


def loses(out: Path, read: Iterable[Path]) -> str | None:
    """The reason why replacing `out` would delete a file or folder that is to be `read`: `out` `is`
    or `holds` one of them, or `lies in` it. None if nothing would be lost."""
    if not out.exists():
        return None
    place = out.resolve()
    for path in read:
        other = path.resolve()
        if place == other:
            return f"is {path}"
        if place in other.parents:
            return f"holds {path}"
        if other in place.parents:
            return f"lies in {path}"
    return None
