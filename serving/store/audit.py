"""The audit log: who did what as an administrator, and when. Entries are never changed."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Float, Integer, Table, Text, insert, select

from serving.store.database import METADATA, Database, now
from serving.store.records.key import AuditEntry

_AUDIT = Table(
    "audit",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("time", Float, nullable=False),
    Column("address", Text, nullable=False),
    Column("act", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("details", Text, nullable=False),
)


def note_act(connection: Connection, address: str, act: str, subject: str, details: str) -> None:
    """Record an action, within the transaction that performs it."""
    values = {"time": now(), "address": address, "act": act, "subject": subject}
    connection.execute(insert(_AUDIT).values(details=details, **values))


class AuditLog:
    """Administrative actions, the newest first."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, address: str, act: str, subject: str = "", details: str = "") -> None:
        """Record an action that has no transaction of its own."""
        with self._database.writing() as connection:
            note_act(connection, address, act, subject, details)

    def entries(self, most: int, before: int | None = None) -> list[AuditEntry]:
        """At most `most` entries with a number below `before`, or of all."""
        query = select(_AUDIT).order_by(_AUDIT.c.number.desc()).limit(most)
        if before is not None:
            query = query.where(_AUDIT.c.number < before)
        with self._database.reading() as connection:
            return [AuditEntry(**row) for row in connection.execute(query).mappings()]
