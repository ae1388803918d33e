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
    StoreUnavailableError where the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, owner: str, languages: tuple[str, str], text: str, suggestion: str, most: int
    ) -> None:
        """Keep what a text should be translated as, between languages by their codes; what is there
        already changes nothing. Raises QuotaExceededError where the owner has as many as `most`."""
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
        """The texts of an owner, or of all, with what is suggested, the oldest first. They are read
        in pages, so that those who write need not wait."""
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
        """Forget the suggestions of an owner; returns how many they were."""
        with self._database.writing() as connection:
            gone = connection.execute(delete(_SUGGESTIONS).where(_SUGGESTIONS.c.owner == owner))
            return gone.rowcount
