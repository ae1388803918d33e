"""What is known of keys, of their use, and of what was done to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

UsagePlace = tuple[str, str, str]
"""Whose use it is, on which day (`2026-11-28`, in UTC), and for which task."""


def digest_of(key: str) -> bytes:
    """What is kept of a key: its SHA-256, of 32 bytes. Digests are of one length, so that comparing
    them tells nothing of the keys'."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True)
class KeyLimits:
    """How much a key may ask for; None leaves that to the settings of the server."""

    characters_a_month: int | None = None
    requests_a_minute: int | None = None


NO_LIMITS = KeyLimits()
"""Of a key that has none of its own."""


@dataclass(frozen=True)
class StoredKey:
    """An API key, of which the store holds a digest only."""

    id: str
    """A UUID, which is also the owner's name of what is kept for this key."""
    label: str
    created: float
    """Seconds since 1970."""
    disabled: float | None
    """When it was disabled, in seconds since 1970; None where it opens the server."""
    limits: KeyLimits


class UsageCount(NamedTuple):
    """How much was asked for; a correction may be less than nothing."""

    requests: int = 0
    characters: int = 0

    def and_also(self, requests: int, characters: int) -> UsageCount:
        """The sum of this and so many more."""
        return UsageCount(self.requests + requests, self.characters + characters)


@dataclass(frozen=True)
class UsageBatch:
    """What one process has counted since its last batch."""

    writer: str
    """A name of the process, which no other has."""
    number: int
    """Of the batch, ascending: the store counts a batch once, however often it is sent."""
    counts: Mapping[UsagePlace, UsageCount]


@dataclass(frozen=True)
class UsageRow:
    """The use that one owner made of one task on one day."""

    day: str
    owner: str
    task: str
    count: UsageCount


@dataclass(frozen=True)
class UsageQuery:
    """Which use is asked for."""

    first: str
    """The first day, as `2026-11-28`."""
    last: str
    """The last day, which is included."""
    owner: str | None = None
    """None asks for everybody's."""


@dataclass(frozen=True)
class AuditEntry:
    """One act of administration."""

    number: int
    """Ascending."""
    time: float
    """Seconds since 1970."""
    address: str
    """Where it was asked for."""
    act: str
    """`create_key`, `change_key`, `delete_key`, `load_model`, `unload_model` or `drain`."""
    subject: str
    """The id of a key or the name of a model; empty where there is none."""
    details: str
    """What was changed, for people."""
