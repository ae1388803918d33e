"""Evaluations of translations, kept for clients that ask for them later."""

from __future__ import annotations

import uuid

from sqlalchemy import Column, Float, Index, String, Table, Text, delete, func, insert, select

from serving.store.database import METADATA, OWNED, Database, now

_KEPT_S = 86_400
_MOST = 1000
"""Largest number of an owner's evaluations; the oldest are deleted first."""
_EVALUATIONS = Table(
    "evaluations",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("created", Float, nullable=False),
    Column("answer", Text, nullable=False),
    Index("ix_evaluations_owner", "owner", "created", "id"),
    info=OWNED,
)


class StoredEvaluations:
    """Evaluations by owner; safe to use from several threads. Every call raises
    StoreUnavailableError if the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, owner: str, answer: str) -> str:
        """Keep an answer for a day, or until the owner has 1000 newer ones; returns its id."""
        table, id = _EVALUATIONS.c, uuid.uuid4().hex
        mine = table.owner == owner
        row = {"id": id, "owner": owner, "created": now(), "answer": answer}
        with self._database.writing() as connection:
            connection.execute(delete(_EVALUATIONS).where(table.created < now() - _KEPT_S))
            connection.execute(insert(_EVALUATIONS), row)
            count = connection.execute(select(func.count()).where(mine)).scalar_one()
            if count > _MOST:
                oldest = select(table.id).where(mine).order_by(table.created, table.id)
                surplus = oldest.limit(count - _MOST)
                connection.execute(delete(_EVALUATIONS).where(table.id.in_(surplus)))
        return id

    def get(self, owner: str, id: str) -> str | None:
        """The answer with this id; None if the owner has none, or if it has expired."""
        table = _EVALUATIONS.c
        wanted = select(table.answer).where(
            table.id == id, table.owner == owner, table.created >= now() - _KEPT_S
        )
        if not (id.isascii() and id.isalnum()):
            return None
        with self._database.reading() as connection:
            return connection.execute(wanted).scalar_one_or_none()
