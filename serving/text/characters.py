"""Characters that no model can read."""

from __future__ import annotations

import re

from serving.errors import InvalidTextError

_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


def check_text(text: str, parameter: str = "text") -> None:
    """Raise InvalidTextError for NUL or a lone surrogate, naming its place, and for what is no text
    at all; `parameter` is the one that it came in."""
    if not isinstance(text, str):
        raise InvalidTextError(
            f"text must be a string, got {type(text).__name__}", parameter=parameter
        )
    match = _UNREADABLE.search(text)
    if match:
        raise InvalidTextError(
            f"text must be Unicode without NUL or lone surrogates, got U+{ord(match[0]):04X} at "
            f"character {match.start()}; remove it",
            parameter=parameter,
        )
