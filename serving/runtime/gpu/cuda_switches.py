"""Environment variables for the use of a GPU: CUDA graphs, and the number of streams."""

from __future__ import annotations

from collections.abc import Mapping

from serving.errors import SettingsError

GRAPHS_SWITCH = "MACARON_CUDA_GRAPHS"
"""The environment variable that turns CUDA graphs off."""
STREAMS_SWITCH = "MACARON_CUDA_STREAMS"
"""The environment variable for the number of concurrent batches, each in a stream of its own. The
default is 1, because one merged batch is faster than two."""
MOST_STREAMS = 8
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""CUDA's own variable: the GPUs that a process sees, as numbers or names, and their order."""


def graphs_wanted(environment: Mapping[str, str]) -> bool:
    """Whether CUDA graphs are on, which is the default. Raises SettingsError for values other than
    on and off."""
    switch = environment.get(GRAPHS_SWITCH, "").strip().lower() or "on"
    if switch not in ("on", "off"):
        raise SettingsError(f"{GRAPHS_SWITCH} must be on or off, got {switch!r}")
    return switch == "on"


def streams_wanted(environment: Mapping[str, str]) -> int:
    """Number of batches that are computed at once, 1 to 8. Raises SettingsError for any other
    value."""
    switch = environment.get(STREAMS_SWITCH, "").strip() or "1"
    if not (switch.isascii() and switch.isdigit() and 1 <= int(switch) <= MOST_STREAMS):
        raise SettingsError(
            f"{STREAMS_SWITCH} must be a number from 1 to {MOST_STREAMS}, got {switch!r}"
        )
    return int(switch)
