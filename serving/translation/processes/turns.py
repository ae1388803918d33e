"""Whose turn it is, of several that share a processor: nobody starves, and the quick are not held
up by the slow."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class FairTurns(Generic[Key]):
    """Start-time fair queueing (Goyal, Vin and Cheng 1996): the turn is that of whoever has used
    the least time.

    Who begins to want turns is taken to have used as much as the one whose turn it is had before
    it: time in which nothing was wanted is not made up for, but the rest of a long turn of another,
    in which it could only wait, is.
    """

    def __init__(self) -> None:
        self._used_s: dict[Key, float] = {}
        self._level_s = 0.0
        """What the one whose turn it was last had used before."""

    def begin(self, key: Key) -> None:
        """Note that one wants turns from now on."""
        self._used_s[key] = max(self._used_s.get(key, 0.0), self._level_s)

    def choose(self, keys: Iterable[Key]) -> Key:
        """Whose turn it is among those, one or several, that want turns; each has begun."""
        key = min(keys, key=lambda each: self._used_s[each])
        self._level_s = self._used_s[key]
        return key

    def charge(self, key: Key, seconds: float) -> None:
        """Note how long a turn took."""
        self._used_s[key] += seconds

    def forget(self, key: Key) -> None:
        """Drop one that wants no more turns."""
        self._used_s.pop(key, None)
