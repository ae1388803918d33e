"""Fair turns for users that share a processor: none starves, and slow ones do not hold up quick
ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class FairTurns(Generic[Key]):
    """Start-time fair queueing (Goyal, Vin and Cheng 1996): the next turn goes to the user who has
    used the least time.

    A new user starts at the level that the user of the current turn had before that turn. So idle
    time earns no credit, but waiting for the end of somebody else's long turn does.
    """

    def __init__(self) -> None:
        self._used_s: dict[Key, float] = {}
        self._level_s = 0.0
        """Seconds that the user of the last turn had used before it."""

    def begin(self, key: Key) -> None:
        """Add a user, who wants turns from now on."""
        self._used_s[key] = max(self._used_s.get(key, 0.0), self._level_s)

    def choose(self, keys: Iterable[Key]) -> Key:
        """The user whose turn it is, of one or several that want one. Each has begun."""
        key = min(keys, key=lambda each: self._used_s[each])
        self._level_s = self._used_s[key]
        return key

    def charge(self, key: Key, seconds: float) -> None:
        """Add the length of a turn to what a user has used."""
        self._used_s[key] += seconds

    def forget(self, key: Key) -> None:
        """Remove a user, who wants no more turns."""
        self._used_s.pop(key, None)
