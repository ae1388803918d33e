"""Uploads and downloads of translation memories, by an address that contains a secret."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    Row,
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

from serving.errors import QuotaExceededError, UnknownMemoryError
from serving.store.database import METADATA, OWNED, Database, now
from serving.store.records.memory import MemoryJob, MemoryJobState

_JOBS = Table(
    "memory_jobs",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("token", String(64), nullable=False),
    Column("memory_id", String(36)),
    Column("name", Text, nullable=False),
    Column("content_length", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("error", Text, nullable=False),
    Column("skipped", Integer, nullable=False),
    UniqueConstraint("token", name="memory_jobs_token"),
    Index("ix_memory_jobs_owner", "owner", "created"),
    info=OWNED,
)
_KEPT_S = 24 * 3600.0
_MOST = 1000
"""Largest number of jobs of an owner within a day."""


class MemoryJobs:
    """Jobs by owner, kept for a day; safe to use from several threads.

    An unknown job raises UnknownMemoryError. Every call raises StoreUnavailableError if the
    database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, owner: str, name: str = "", content_length: int = 0, memory_id: str | None = None
    ) -> MemoryJob:
        """Store a new job. Without `memory_id` it is an upload of a file of this many bytes. Raises
        QuotaExceededError if the owner has created too many within a day."""
        time = now()
        id, token = str(uuid.uuid4()), secrets.token_hex(32)
        state: MemoryJobState = "waiting" if memory_id is None else "done"
        job = MemoryJob(id, token, memory_id, name, content_length, time, time, state, "", 0)
        with self._database.writing() as connection:
            connection.execute(delete(_JOBS).where(_JOBS.c.created < time - _KEPT_S))
            self._database.alone(connection, _JOBS.name, owner)
            owned = select(func.count()).where(_JOBS.c.owner == owner)
            if connection.execute(owned).scalar_one() >= _MOST:
                raise QuotaExceededError(
                    f"at most {_MOST} imports and exports of memories are begun for a key within "
                    "a day; try again later"
                )
            connection.execute(insert(_JOBS), {"owner": owner, **asdict(job)})
        return job

    def get(self, owner: str, id: str) -> MemoryJob:
        """The record of a job."""
        wanted = select(_JOBS).where(_JOBS.c.owner == owner, _JOBS.c.id == id)
        with self._database.reading() as connection:
            row = connection.execute(wanted).first()
        if row is None:
            raise UnknownMemoryError("no job of a memory has that id; begin another one")
        return _record(row)

    def of_token(self, token: str) -> tuple[str, MemoryJob]:
        """The job with this secret, and its owner."""
        with self._database.reading() as connection:
            row = connection.execute(select(_JOBS).where(_JOBS.c.token == token)).first()
        if row is None:
            raise UnknownMemoryError("there is no such address any more; begin another job")
        return row.owner, _record(row)

    def claimed(self, job: MemoryJob) -> bool:
        """Whether the file of a job may be read now. Returns True only once, whoever asks."""
        changes = {"state": "reading", "updated": now()}
        own = update(_JOBS).where(_JOBS.c.id == job.id, _JOBS.c.state == "waiting")
        with self._database.writing() as connection:
            return connection.execute(own.values(changes)).rowcount == 1

    def done(self, job: MemoryJob, memory_id: str, skipped: int) -> None:
        """Record that a file has been read."""
        self._change(job, {"state": "done", "memory_id": memory_id, "skipped": skipped})

    def failed(self, job: MemoryJob, error: str) -> None:
        """Record that a file cannot be read, and the reason."""
        self._change(job, {"state": "failed", "error": error})

    def _change(self, job: MemoryJob, changes: dict[str, object]) -> None:
        with self._database.writing() as connection:
            own = update(_JOBS).where(_JOBS.c.id == job.id)
            connection.execute(own.values({**changes, "updated": now()}))


def _record(row: Row[Any]) -> MemoryJob:
    return MemoryJob(
        id=row.id,
        token=row.token,
        memory_id=row.memory_id,
        name=row.name,
        content_length=row.content_length,
        created=row.created,
        updated=row.updated,
        state=row.state,
        error=row.error,
        skipped=row.skipped,
    )
