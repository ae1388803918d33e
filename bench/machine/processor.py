"""The processor that a bench runs on, and the settings of rivals that follow from it."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

_INT8_UNITS = {
    "amx_int8": "AMX",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
"""The int8 units of processors by their flags in /proc/cpuinfo, the best first."""
_INEXACT = ("AVX-512", "AVX2")
"""Units without VNNI, on which oneDNN's int8 products are not exact."""
USE_MKL = "CT2_USE_MKL"
"""Environment variable; CTranslate2 multiplies with MKL if it is 1."""


@cache
def cpuinfo() -> str:
    """The content of /proc/cpuinfo; empty on systems other than Linux."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def cpu_name(cpuinfo: str) -> str:
    """The processor's name with its unit for int8 products, which the name alone does not show."""
    name = _fact(cpuinfo, "model name") or platform.processor() or platform.machine()
    unit = int8_unit(cpuinfo)
    return f"{name} with {unit}" if unit else name


def int8_unit(cpuinfo: str) -> str | None:
    """The best that it has for int8 products."""
    flags = set(_fact(cpuinfo, "flags").split())
    return next((unit for flag, unit in _INT8_UNITS.items() if flag in flags), None)


def rivals_environment(cpuinfo: str, precision: str) -> dict[str, str]:
    """Variables with which the rivals run at their best.

    On processors of other makers than Intel CTranslate2 multiplies with oneDNN, whose int8 products
    are not exact without VNNI: its outputs then differ widely from the model's. With MKL they are
    exact. fp32 is faster with oneDNN.
    """
    inexact = precision == "int8" and int8_unit(cpuinfo) in _INEXACT
    return {USE_MKL: "1"} if inexact else {}


def child_environment(precision: str) -> dict[str, str]:
    """The environment of a process that may run a rival; variables that the user has set stay."""
    return rivals_environment(cpuinfo(), precision) | os.environ


def _fact(cpuinfo: str, name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else ""
