"""Files that are uploaded for jobs or result from them: their records, without content."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    String,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from serving.errors import QuotaExceededError
from serving.store.database import METADATA, Database, now
from serving.store.records.job import KeptFile

_FILES = Table(
    "files",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Index("files_by_owner", "owner", "created"),
    Index("files_by_end", "expires"),
)


class StoredFiles:
    """The files of a database; safe to use from several threads, and from several servers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, file: KeptFile, most: int) -> None:
        """Record an uploaded file. Raises QuotaExceededError if its owner has too many already."""
        sent = (_FILES.c.owner == file.owner, _FILES.c.purpose == file.purpose)
        with self._database.writing() as connection:
            self._database.alone(connection, _FILES.name, file.owner)
            count = connection.execute(select(func.count()).where(*sent)).scalar_one()
            if count >= most:
                raise QuotaExceededError(
                    f"at most {most} files of a key are kept; delete one first"
                )
            connection.execute(insert(_FILES).values(**asdict(file)))

    def put(self, file: KeptFile) -> None:
        """Record a file that resulted from a job; it replaces an earlier one with the same id."""
        with self._database.writing() as connection:
            connection.execute(delete(_FILES).where(_FILES.c.id == file.id))
            connection.execute(insert(_FILES).values(**asdict(file)))

    def get(self, owner: str, id: str) -> KeptFile | None:
        """The file with this id, if it belongs to this owner and has not expired; otherwise
        None."""
        with self._database.reading() as connection:
            return _one(connection, owner, id)

    def page(
        self, owner: str, purpose: str | None, after: str | None, most: int, *, newest: bool
    ) -> list[KeptFile]:
        """At most `most` files of an owner, of one purpose if `purpose` is given, the newest or the
        oldest first, starting behind the file `after`; an empty list if there is no such file."""
        query = select(_FILES).where(_FILES.c.owner == owner, _FILES.c.expires >= now())
        if purpose is not None:
            query = query.where(_FILES.c.purpose == purpose)
        time, id = _FILES.c.created, _FILES.c.id
        with self._database.reading() as connection:
            if after is not None:
                last = _one(connection, owner, after)
                if last is None:
                    return []
                behind = time < last.created if newest else time > last.created
                next_id = id < last.id if newest else id > last.id
                query = query.where(or_(behind, and_(time == last.created, next_id)))
            order = (time.desc(), id.desc()) if newest else (time, id)
            rows = connection.execute(query.order_by(*order).limit(most)).mappings()
            return [KeptFile(**row) for row in rows]

    def keep_until(self, owner: str, id: str, expires: float) -> KeptFile | None:
        """Keep a file at least until `expires`. Returns it, or None as `get` does."""
        mine = (_FILES.c.id == id, _FILES.c.owner == owner)
        with self._database.writing() as connection:
            later = update(_FILES).where(*mine, _FILES.c.expires >= now())
            later = later.where(_FILES.c.expires < expires)
            connection.execute(later.values(expires=expires))
            return _one(connection, owner, id)

    def delete(self, owner: str, id: str) -> bool:
        """Delete a file's record. Returns False if there is none."""
        mine = (_FILES.c.id == id, _FILES.c.owner == owner)
        with self._database.writing() as connection:
            return bool(connection.execute(delete(_FILES).where(*mine)).rowcount)

    def remove_expired(self) -> list[str]:
        """Delete the records of expired files; returns their ids."""
        over = delete(_FILES).where(_FILES.c.expires < now()).returning(_FILES.c.id)
        with self._database.writing() as connection:
            return list(connection.execute(over).scalars())

    def known(self, ids: Collection[str]) -> frozenset[str]:
        """The ids that belong to files of any owner; `ids` may be a few hundred."""
        with self._database.reading() as connection:
            found = connection.execute(select(_FILES.c.id).where(_FILES.c.id.in_(ids)))
            return frozenset(found.scalars())


def _one(connection: Connection, owner: str, id: str) -> KeptFile | None:
    mine = (_FILES.c.id == id, _FILES.c.owner == owner, _FILES.c.expires >= now())
    row = connection.execute(select(_FILES).where(*mine)).mappings().first()
    return None if row is None else KeptFile(**row)
