"""API keys that are created and deleted while the server runs.

Only digests are stored: a key is long and random, so a plain SHA-256 is as good as a slow hash.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    RowMapping,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from serving.errors import RequestError
from serving.store.audit import note_act
from serving.store.database import METADATA, OWNED, Database, now
from serving.store.records.key import KeyLimits, StoredKey, digest_of

_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("label", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("disabled", Float),
    Column("characters_a_month", BigInteger),
    Column("requests_a_minute", Integer),
    UniqueConstraint("digest", name="api_keys_digest"),
)


class StoredKeys:
    """The keys of a database. Changes take the address of the requester, for the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def any(self) -> bool:
        """Whether there is at least one key."""
        with self._database.reading() as connection:
            return connection.execute(select(_KEYS.c.id).limit(1)).first() is not None

    def create(
        self, label: str, limits: KeyLimits, address: str, most: int
    ) -> tuple[StoredKey, str]:
        """Create a key. Returns its record, and the key itself, which is not stored.

        Raises RequestError if there are `most` keys already.
        """
        secret = "mk-" + secrets.token_urlsafe(32)
        key = StoredKey(_new_id(), label, now(), None, limits)
        with self._database.writing() as connection:
            self._database.alone(connection, _KEYS.name)
            count = connection.execute(select(func.count()).select_from(_KEYS)).scalar_one()
            if count >= most:
                raise RequestError(f"at most {most} keys are kept on this server; delete one first")
            connection.execute(insert(_KEYS).values(digest=digest_of(secret), **_columns(key)))
            note_act(connection, address, "create_key", key.id, _described(key))
        return key, secret

    def find(self, digest: bytes) -> StoredKey | None:
        """The key with this digest, disabled or not."""
        with self._database.reading() as connection:
            return _first(connection, _KEYS.c.digest == digest)

    def get(self, id: str) -> StoredKey | None:
        """The key with this id, disabled or not."""
        with self._database.reading() as connection:
            return _first(connection, _KEYS.c.id == id)

    def listed(self, most: int, after: str = "") -> list[StoredKey]:
        """At most `most` keys, the oldest first, that come after the key with the id `after`."""
        query = select(_KEYS).where(_KEYS.c.id > after).order_by(_KEYS.c.id).limit(most)
        with self._database.reading() as connection:
            return [_key(row) for row in connection.execute(query).mappings()]

    def change(
        self, id: str, changed: Callable[[StoredKey], StoredKey], address: str
    ) -> StoredKey | None:
        """Replace a key by the result of `changed`. Returns None if there is no such key."""
        with self._database.writing() as connection:
            before = _first(connection, _KEYS.c.id == id, lock=True)
            if before is None:
                return None
            key = changed(before)
            connection.execute(update(_KEYS).where(_KEYS.c.id == id).values(**_columns(key)))
            note_act(connection, address, "change_key", id, _described(key))
            return key

    def delete(self, id: str, address: str) -> bool:
        """Delete a key and the data that belong to it, which nobody could reach any more; its usage
        counts stay. Returns False if there is no such key."""
        with self._database.writing() as connection:
            found = connection.execute(delete(_KEYS).where(_KEYS.c.id == id)).rowcount > 0
            if found:
                for table in METADATA.sorted_tables:
                    if table.info == OWNED:
                        connection.execute(delete(table).where(table.c.owner == id))
                note_act(connection, address, "delete_key", id, "")
            return found


def _new_id() -> str:
    """A UUID of version 7, with fractions of a millisecond (RFC 9562, 6.2, method 3), so that ids
    are in the order in which keys were created."""
    stamp, rest = divmod(time.time_ns(), 10**6)
    part = rest * 4096 // 10**6
    bits = (stamp & (1 << 48) - 1) << 80 | 7 << 76 | part << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=bits))


def _first(connection: Connection, condition: Any, *, lock: bool = False) -> StoredKey | None:
    query = select(_KEYS).where(condition)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return None if row is None else _key(row)


def _key(row: RowMapping) -> StoredKey:
    limits = KeyLimits(row["characters_a_month"], row["requests_a_minute"])
    return StoredKey(row["id"], row["label"], row["created"], row["disabled"], limits)


def _columns(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "label": key.label,
        "created": key.created,
        "disabled": key.disabled,
        "characters_a_month": key.limits.characters_a_month,
        "requests_a_minute": key.limits.requests_a_minute,
    }


def _described(key: StoredKey) -> str:
    """A description of a key, for the audit log."""
    characters, requests = key.limits.characters_a_month, key.limits.requests_a_minute
    state = "enabled" if key.disabled is None else "disabled"
    return f"{state}, {characters=}, {requests=}, label={key.label!r}"
