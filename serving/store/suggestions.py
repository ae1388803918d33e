"""Better translations that users have sent in."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)

from serving.errors import QuotaExceededError
from serving.store.database import METADATA, OWNED, Database, now

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
_SUGGESTIONS = Table(
    "suggestions",
    METADATA,
    Column("number", _NUMBER, primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("created", Float, nullable=False),
    Column("source", String(35), nullable=False),
    Column("target", String(35), nullable=False),
    Column("text", Text, nullable=False),
    Column("suggestion", Text, nullable=False),
    Index("ix_suggestions_owner", "owner", "number"),
    info=OWNED,
)
_PAGE = 1000


class Suggestions:
    """Suggestions by owner; safe to use from several threads. Every call raises
    StoreUnavailableError if the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, owner: str, languages: tuple[str, str], text: str, suggestion: str, most: int
    ) -> None:
        """Store a better translation of a text, between languages given by their codes; an existing
        one stays. Raises QuotaExceededError if the owner has `most` suggestions already."""
        table = _SUGGESTIONS.c
        source, target = languages
        row = {"source": source, "target": target, "text": text, "suggestion": suggestion}
        same = [table[name] == value for name, value in row.items()]
        with self._database.writing() as connection:
            self._database.alone(connection, _SUGGESTIONS.name, owner)
            mine = table.owner == owner
            if connection.execute(select(table.number).where(mine, *same).limit(1)).first():
                return
            if connection.execute(select(func.count()).where(mine)).scalar_one() >= most:
                raise QuotaExceededError(
                    f"at most {most} suggestions (MACARON_MAX_SUGGESTIONS) are kept for a key; "
                    "fetch them from /suggestions and delete them there"
                )
            connection.execute(insert(_SUGGESTIONS), {"owner": owner, "created": now(), **row})

    def pairs(self, owner: str | None, source: str, target: str) -> Iterator[tuple[str, str]]:
        """Yield the texts of an owner, or of all, with the suggested translations, the oldest
        first. They are read in pages, so that writers need not wait."""
        table, after = _SUGGESTIONS.c, 0
        wanted = select(table.number, table.text, table.suggestion).order_by(table.number)
        wanted = wanted.where(table.source == source, table.target == target).limit(_PAGE)
        if owner is not None:
            wanted = wanted.where(table.owner == owner)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(wanted.where(table.number > after)).all()
            for _, text, suggestion in rows:
                yield text, suggestion
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def clear(self, owner: str) -> int:
        """Delete the suggestions of an owner; returns their number."""
        with self._database.writing() as connection:
            gone = connection.execute(delete(_SUGGESTIONS).where(_SUGGESTIONS.c.owner == owner))
            return gone.rowcount
