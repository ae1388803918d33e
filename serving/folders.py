"""Where this project keeps what it can make anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of models that were pulled, of kernels that were compiled and of timings.

    MACARON_CACHE names it; without that it is `macaron` in the user's cache folder (XDG base
    directories).
    """
    named = environment.get("MACARON_CACHE", "").strip()
    if named:
        return Path(named).expanduser().absolute()
    home = environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "macaron"
