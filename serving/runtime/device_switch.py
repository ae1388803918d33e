"""The environment variable that selects the device, in a module that needs no array."""

from __future__ import annotations

import os

from serving.errors import SettingsError

SWITCH = "MACARON_DEVICE"
"""The environment variable that selects where bundles run. `auto`: on the device for which they
were exported, with their engines if they have any; `cpu`: on the CPU, whatever they were exported
for; `cuda`: on a GPU without engines; `tensorrt`: on a GPU with engines. A GPU refuses bundles for
the CPU."""
_SWITCHES = ("auto", "cpu", "cuda", "tensorrt")


def wanted() -> str:
    """The value of the switch; raises SettingsError for an invalid one."""
    switch = os.environ.get(SWITCH, "").strip().lower() or "auto"
    if switch not in _SWITCHES:
        raise SettingsError(f"{SWITCH} must be {', '.join(_SWITCHES)}, got {switch!r}")
    return switch
