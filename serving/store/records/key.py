"""Records of API keys, of their usage, and of administrative actions on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

UsagePlace = tuple[str, str, str]
"""Owner, day (`2026-11-28`, UTC) and task of a usage count."""


def digest_of(key: str) -> bytes:
    """The stored form of a key: its SHA-256, 32 bytes. All digests have the same length, so
    comparing them reveals nothing about the lengths of keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True)
class KeyLimits:
    """Limits of a key; None leaves a limit to the settings of the server."""

    characters_a_month: int | None = None
    requests_a_minute: int | None = None


NO_LIMITS = KeyLimits()
"""The limits of a key that has none of its own."""


@dataclass(frozen=True)
class StoredKey:
    """An API key; the store holds only its digest."""

    id: str
    """A UUID; it is also the owner name of everything stored for this key."""
    label: str
    created: float
    """Seconds since 1970."""
    disabled: float | None
    """Time when it was disabled, in seconds since 1970; None while it is valid."""
    limits: KeyLimits


class UsageCount(NamedTuple):
    """Requests and characters; a correction may be negative."""

    requests: int = 0
    characters: int = 0

    def and_also(self, requests: int, characters: int) -> UsageCount:
        """The sum of two counts."""
        return UsageCount(self.requests + requests, self.characters + characters)


@dataclass(frozen=True)
class UsageBatch:
    """The counts of one process since its last batch."""

    writer: str
    """A unique name of the process."""
    number: int
    """Number of the batch, ascending: the store counts a batch once, however often it is sent."""
    counts: Mapping[UsagePlace, UsageCount]


@dataclass(frozen=True)
class UsageRow:
    """Usage of one owner and task on one day."""

    day: str
    owner: str
    task: str
    count: UsageCount


@dataclass(frozen=True)
class UsageQuery:
    """A query of usage rows."""

    first: str
    """The first day, as `2026-11-28`."""
    last: str
    """The last day, which is included."""
    owner: str | None = None
    """Owner; None selects all owners."""


@dataclass(frozen=True)
class AuditEntry:
    """An administrative action."""

    number: int
    """Number of the entry, ascending."""
    time: float
    """Time of the action, in seconds since 1970."""
    address: str
    """Address of the requester."""
    act: str
    """`create_key`, `change_key`, `delete_key`, `load_model`, `unload_model` or `drain`."""
    subject: str
    """Id of a key or name of a model; empty if the action has neither."""
    details: str
    """Description of the change, for people."""
