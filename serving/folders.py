"""The folder for files that this project can make again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of pulled models, compiled kernels and timings.

    MACARON_CACHE names it; without that it is `macaron` in the user's cache folder (XDG base
    directories).
    """
    named = environment.get("MACARON_CACHE", "").strip()
    if named:
        return Path(named).expanduser().absolute()
    home = environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "macaron"
