"""Checks of single values of a recipe; each raises ConfigError, which states the allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from training.errors import ConfigError

_NO_LIMIT = float("inf")


def check_range(name: str, value: float, low: float, high: float = _NO_LIMIT) -> None:
    """Raise ConfigError if the value is outside [low, high]."""
    if not low <= value <= high:  # written so that NaN fails
        allowed = f">= {low}" if high == _NO_LIMIT else f"in [{low}, {high}]"
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ConfigError if the value is not one of the choices."""
    if value not in choices:
        hint = nearest(value, choices) or f"; there are {list(choices)}"
        raise ConfigError(f"unknown {name} {value!r}{hint}")


def nearest(word: str, known: Iterable[str], most: int = 1) -> str:
    """The end of an error message that proposes the most similar known words, at most that many;
    empty if none is similar."""
    matches = difflib.get_close_matches(word, list(known), n=most, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, matches))}?" if matches else ""
