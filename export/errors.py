"""Errors of export.

ExportError
└── ParityError   the exported graphs differ from the checkpoint by more than the limits
"""

from __future__ import annotations


class ExportError(Exception):
    """A bundle cannot be made; the message names the reason and the next step."""


class ParityError(ExportError):
    """The exported bundle is not as good as its checkpoint; no bundle is left."""
