"""The usage of each owner: requests and characters by day and task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Select,
    String,
    Table,
    delete,
    func,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from serving.store.database import METADATA, Database, now
from serving.store.records.key import UsageBatch, UsageCount, UsageQuery, UsageRow

_WRITER_KEPT_S = 7 * 86_400
"""Seconds after which no process repeats a batch that it has sent before."""
_USAGE = Table(
    "usage",
    METADATA,
    Column("owner", String(64), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("task", String(32), primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Index("usage_day", "day"),
)
_WRITERS = Table(
    "usage_writers",
    METADATA,
    Column("writer", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("seen", Float, nullable=False),
)


class StoredUsage:
    """The usage of the servers of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, batch: UsageBatch, month: str) -> dict[str, int]:
        """Count a batch, only once even if it is sent again, which happens when an answer is lost.
        Returns the characters of its owners in a month (`2026-11`)."""
        with self._database.writing() as connection:
            if not self._counted(connection, batch):
                self._count(connection, batch)
            return _of_month(connection, {owner for owner, _, _ in batch.counts}, month)

    def of_month(self, owner: str, month: str) -> int:
        """Number of characters of an owner in a month (`2026-11`)."""
        with self._database.reading() as connection:
            return _of_month(connection, {owner}, month)[owner]

    def rows(
        self, query: UsageQuery, most: int, after: tuple[str, str, str] = ("", "", "")
    ) -> list[UsageRow]:
        """At most `most` rows, ordered by day, owner and task, that come after the day, owner and
        task in `after`."""
        place = tuple_(_USAGE.c.day, _USAGE.c.owner, _USAGE.c.task)
        statement = _asked(select(_USAGE), query).order_by(
            _USAGE.c.day, _USAGE.c.owner, _USAGE.c.task
        )
        with self._database.reading() as connection:
            found = connection.execute(statement.where(place > after).limit(most)).mappings()
            return [
                UsageRow(
                    row["day"],
                    row["owner"],
                    row["task"],
                    UsageCount(row["requests"], row["characters"]),
                )
                for row in found
            ]

    def totals(self, query: UsageQuery) -> dict[str, UsageCount]:
        """The sums over days and owners, by task."""
        sums = [_USAGE.c.task, func.sum(_USAGE.c.requests), func.sum(_USAGE.c.characters)]
        statement = _asked(select(*sums), query).group_by(_USAGE.c.task)
        with self._database.reading() as connection:
            found = connection.execute(statement)
            return {task: UsageCount(int(n), int(count)) for task, n, count in found}

    def _counted(self, connection: Connection, batch: UsageBatch) -> bool:
        """Whether the batch was counted before. If it was not, record that it is counted now."""
        writer = _WRITERS.c.writer == batch.writer
        number = connection.execute(select(_WRITERS.c.number).where(writer)).scalar()
        if number is not None and number >= batch.number:
            return True
        if number is None:  # a new process: forget those that ended long ago
            old = _WRITERS.c.seen < now() - _WRITER_KEPT_S
            connection.execute(delete(_WRITERS).where(old))
        statement = self._insert(_WRITERS)
        values = {"number": statement.excluded.number, "seen": statement.excluded.seen}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["writer"], set_=values),
            {"writer": batch.writer, "number": batch.number, "seen": now()},
        )
        return False

    def _count(self, connection: Connection, batch: UsageBatch) -> None:
        statement = self._insert(_USAGE)
        added = statement.on_conflict_do_update(
            index_elements=["owner", "day", "task"],
            set_={
                name: _USAGE.c[name] + statement.excluded[name]
                for name in ("requests", "characters")
            },
        )
        rows = [
            {
                "owner": owner,
                "day": day,
                "task": task,
                "requests": count.requests,
                "characters": count.characters,
            }
            # In order, so that two servers do not wait for each other.
            for (owner, day, task), count in sorted(batch.counts.items(), key=lambda item: item[0])
        ]
        connection.execute(added, rows)

    def _insert(self, table: Table) -> Any:
        """An INSERT that can specify what to do with an existing row."""
        dialect = sqlite if self._database.dialect == "sqlite" else postgresql
        return dialect.insert(table)


def _of_month(connection: Connection, owners: Collection[str], month: str) -> dict[str, int]:
    statement = (
        select(_USAGE.c.owner, func.sum(_USAGE.c.characters))
        .where(_USAGE.c.owner.in_(owners))
        .where(_USAGE.c.day.between(f"{month}-01", f"{month}-31"))
        .group_by(_USAGE.c.owner)
    )
    found = {owner: int(count) for owner, count in connection.execute(statement)}
    return {owner: found.get(owner, 0) for owner in owners}


def _asked(statement: Select[Any], query: UsageQuery) -> Select[Any]:
    statement = statement.where(_USAGE.c.day.between(query.first, query.last))
    if query.owner is not None:
        statement = statement.where(_USAGE.c.owner == query.owner)
    return statement
