"""The error of a bench that cannot measure."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement cannot be made; the message names what was found and the next step."""
