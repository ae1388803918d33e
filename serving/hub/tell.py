"""Messages for the user while a model is downloaded."""

from __future__ import annotations

import sys

_UNITS = (("kB", 1), ("MB", 2), ("GB", 3))


def tell(text: str) -> None:
    """Write a line to stderr, unbuffered."""
    print(text, file=sys.stderr, flush=True)


def size_text(count: int) -> str:
    """A number of bytes in a readable unit: 512 B, 3.2 kB, 106 MB, 2.4 GB."""
    if count < 1000:
        return f"{count} B"
    unit, power = next((u, p) for u, p in _UNITS if count < 999.5 * 1000**p or u == "GB")
    size = count / 1000**power
    return f"{size:.0f} {unit}" if size >= 99.5 else f"{size:.1f} {unit}"
