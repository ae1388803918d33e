"""Glossaries in the database, and the recently used indexes in memory."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from serving.errors import QuotaExceededError, RequestError, UnknownGlossaryError
from serving.store.database import METADATA, OWNED, Database, now
from serving.store.indexes import IndexCache
from serving.store.records.glossary import (
    MOST_DICTIONARIES,
    GlossaryLimits,
    NewDictionary,
    StoredDictionary,
    StoredGlossary,
    as_tsv,
    entries_of,
    too_many_entries,
)
from serving.store.records.name import is_id
from serving.text.glossary import TermIndex
from serving.text.languages import base_language

_GLOSSARIES = Table(
    "glossaries",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("created", Float, nullable=False),
    Column("name", Text, nullable=False),
    Index("ix_glossaries_owner", "owner", "created", "id"),
    info=OWNED,
)
_DICTIONARIES = Table(
    "glossary_dictionaries",
    METADATA,
    Column("glossary_id", ForeignKey("glossaries.id", ondelete="CASCADE"), primary_key=True),
    Column("source", String(35), primary_key=True),
    Column("target", String(35), primary_key=True),
    Column("version", String(32), nullable=False),
    Column("entry_count", Integer, nullable=False),
    # Read and written whole, as TSV. It stands last, so that SQLite need not read it for the rest.
    Column("entries", Text, nullable=False),
)
_PLACE = 16
"""Number of digits at the beginning of a version, by which the dictionaries of a glossary are
ordered."""
_PAGE = 1000
_CACHED_ENTRIES = 200_000
"""Largest number of entries in the indexes that are kept in memory: about 100 MB."""


@dataclass(frozen=True)
class _Versioned:
    """The index of a dictionary, and the version of the dictionary; the index may already be of a
    newer one."""

    version: str
    index: TermIndex


class Glossaries:
    """Glossaries by owner; safe to use from several threads.

    An id that does not belong to a glossary of the owner raises UnknownGlossaryError. Every call
    raises StoreUnavailableError if the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._indexes = IndexCache[tuple[str, str, str], _Versioned](
            _CACHED_ENTRIES, lambda each: len(each.index)
        )

    def create(
        self,
        owner: str,
        name: str,
        dictionaries: Sequence[NewDictionary],
        limits: GlossaryLimits,
    ) -> StoredGlossary:
        """Store a new glossary. Raises RequestError if two dictionaries have the same language
        pair, and QuotaExceededError if the owner already has the largest number of glossaries."""
        _check_pairs(dictionaries)
        found = StoredGlossary(str(uuid.uuid4()), name, now(), tuple(map(_head, dictionaries)))
        with self._database.writing() as connection:
            self._database.alone(connection, _GLOSSARIES.name, owner)
            owned = select(func.count()).where(_GLOSSARIES.c.owner == owner)
            if connection.execute(owned).scalar_one() >= limits.glossaries:
                raise QuotaExceededError(
                    f"at most {limits.glossaries} glossaries (MACARON_MAX_GLOSSARIES) are kept for "
                    "a key; delete one"
                )
            row = {"id": found.id, "owner": owner, "created": found.created, "name": name}
            connection.execute(insert(_GLOSSARIES), row)
            for dictionary in dictionaries:
                _write(connection, found.id, dictionary)
        return found

    def page(
        self, owner: str, after: str | None = None, limit: int | None = None
    ) -> list[StoredGlossary]:
        """The glossaries of an owner, the oldest first: at most `limit` of those behind the
        glossary `after`, by default all."""
        found: list[StoredGlossary] = []
        with self._database.reading() as connection:
            while limit is None or len(found) < limit:
                count = _PAGE if limit is None else min(_PAGE, limit - len(found))
                page = _page(connection, owner, after, count)
                found += page
                if len(page) < count:
                    break
                after = page[-1].id
        return found

    def get(self, owner: str, id: str) -> StoredGlossary:
        """The record of a glossary, without its entries."""
        with self._database.reading() as connection:
            return _one(connection, owner, id)

    def entries(self, owner: str, id: str, source: str, target: str) -> dict[str, str]:
        """The entries of a glossary for a language pair. Raises UnknownGlossaryError if it has none
        for that pair."""
        with self._database.reading() as connection:
            _one(connection, owner, id)
            return _read(connection, id, source, target)

    def replace(
        self, owner: str, id: str, dictionary: NewDictionary, limits: GlossaryLimits
    ) -> StoredDictionary:
        """Store a dictionary: it replaces the one for its language pair, or is added."""
        return self._changed(owner, id, None, [dictionary], limits, merge=False)[0]

    def patch(
        self,
        owner: str,
        id: str,
        name: str | None,
        dictionaries: Sequence[NewDictionary],
        limits: GlossaryLimits,
    ) -> StoredGlossary:
        """Rename a glossary, if `name` is given, and add entries to its dictionaries; an existing
        term gets the new translation. Both happen, or neither."""
        self._changed(owner, id, name, dictionaries, limits, merge=True)
        return self.get(owner, id)

    def delete(self, owner: str, id: str) -> None:
        """Delete a glossary."""
        with self._database.writing() as connection:
            glossary = _one(connection, owner, id, lock=True)
            connection.execute(delete(_GLOSSARIES).where(_GLOSSARIES.c.id == id))
        for each in glossary.dictionaries:
            self._indexes.drop((id, each.source, each.target))

    def delete_dictionary(self, owner: str, id: str, source: str, target: str) -> None:
        """Delete the entries of a glossary for a language pair. Raises UnknownGlossaryError if it
        has none for that pair."""
        with self._database.writing() as connection:
            _one(connection, owner, id, lock=True)
            gone = connection.execute(delete(_DICTIONARIES).where(_is(id, source, target)))
            if not gone.rowcount:
                raise _no_pair(id, source, target)
        self._indexes.drop((id, source, target))

    def index(self, owner: str, id: str, source: str, target: str) -> TermIndex:
        """The index by which the entries for a language pair are found in texts. A dictionary
        without regions serves languages with regions. Raises RequestError if there is none for the
        pair."""
        with self._database.reading() as connection:
            glossary = _one(connection, owner, id)
            pair = _fitting(glossary, source, target)
            version = connection.execute(
                select(_DICTIONARIES.c.version).where(_is(id, *pair))
            ).scalar_one_or_none()
        if version is None:  # it has just been deleted
            raise _no_pair(id, *pair)

        def made(kept: _Versioned | None) -> _Versioned:
            if kept is not None and kept.version == version:
                return kept
            entries = self.entries(owner, id, *pair)
            return _Versioned(version, TermIndex(entries.items(), *pair))

        return self._indexes.up_to_date((id, *pair), made).index

    def _changed(
        self,
        owner: str,
        id: str,
        name: str | None,
        dictionaries: Sequence[NewDictionary],
        limits: GlossaryLimits,
        *,
        merge: bool,
    ) -> list[StoredDictionary]:
        _check_pairs(dictionaries)
        changed = []
        with self._database.writing() as connection:
            glossary = _one(connection, owner, id, lock=True)
            pairs = {(each.source, each.target) for each in glossary.dictionaries}
            if name is not None:
                named = update(_GLOSSARIES).where(_GLOSSARIES.c.id == id)
                connection.execute(named, {"name": name})
            for dictionary in dictionaries:
                pair = dictionary.source, dictionary.target
                if merge and pair in pairs:
                    entries = _read(connection, id, *pair) | dict(dictionary.entries)
                    dictionary = NewDictionary(*pair, entries)
                    if len(entries) > limits.entries:
                        raise too_many_entries(limits)
                pairs.add(pair)
                if len(pairs) > MOST_DICTIONARIES:
                    raise _too_many_pairs(len(pairs))
                written = select(_DICTIONARIES.c.version).where(_is(id, *pair))
                former = connection.execute(written).scalar_one_or_none()
                connection.execute(delete(_DICTIONARIES).where(_is(id, *pair)))
                _write(connection, id, dictionary, former)
                changed.append(_head(dictionary))
        return changed


def _page(
    connection: Connection, owner: str, after: str | None, count: int
) -> list[StoredGlossary]:
    order = _GLOSSARIES.c.created, _GLOSSARIES.c.id
    wanted = select(_GLOSSARIES).where(_GLOSSARIES.c.owner == owner).order_by(*order).limit(count)
    if after is not None:
        last = select(*order).where(_GLOSSARIES.c.owner == owner, _GLOSSARIES.c.id == after)
        found = connection.execute(last).first()
        if found is None:
            raise _unknown(after)
        wanted = wanted.where(tuple_(*order) > tuple_(*found))
    rows = connection.execute(wanted).all()
    heads = _heads(connection, [row.id for row in rows])
    return [
        StoredGlossary(row.id, row.name, row.created, tuple(heads.get(row.id, ()))) for row in rows
    ]


def _one(connection: Connection, owner: str, id: str, *, lock: bool = False) -> StoredGlossary:
    """The record of a glossary. With `lock` nobody else can change it until the transaction ends
    (SQLite has only one writer in any case)."""
    wanted = select(_GLOSSARIES).where(_GLOSSARIES.c.owner == owner, _GLOSSARIES.c.id == id)
    row = None
    if is_id(id):
        row = connection.execute(wanted.with_for_update() if lock else wanted).first()
    if row is None:
        raise _unknown(id)
    return StoredGlossary(id, row.name, row.created, tuple(_heads(connection, [id]).get(id, ())))


def _heads(connection: Connection, ids: Sequence[str]) -> dict[str, list[StoredDictionary]]:
    table = _DICTIONARIES.c
    wanted = (
        select(table.glossary_id, table.source, table.target, table.entry_count)
        .where(table.glossary_id.in_(ids))
        .order_by(table.version)  # as they were written
    )
    found: dict[str, list[StoredDictionary]] = {}
    for id, *head in connection.execute(wanted):
        found.setdefault(id, []).append(StoredDictionary(*head))
    return found


def _read(connection: Connection, id: str, source: str, target: str) -> dict[str, str]:
    wanted = select(_DICTIONARIES.c.entries).where(_is(id, source, target))
    text = connection.execute(wanted).scalar_one_or_none()
    if text is None:
        raise _no_pair(id, source, target)
    return dict(entries_of(text, "tsv"))


def _write(
    connection: Connection, id: str, dictionary: NewDictionary, former: str | None = None
) -> None:
    """Write a dictionary. One that replaces a dictionary of the version `former` keeps that one's
    position in its glossary."""
    place = former[:_PLACE] if former else f"{time.time_ns():0{_PLACE}x}"
    connection.execute(
        insert(_DICTIONARIES),
        {
            "glossary_id": id,
            "source": dictionary.source,
            "target": dictionary.target,
            "version": place + secrets.token_hex(_PLACE // 2),
            "entry_count": len(dictionary.entries),
            "entries": as_tsv(dictionary.entries),
        },
    )


def _is(id: str, source: str, target: str) -> ColumnElement[bool]:
    table = _DICTIONARIES.c
    return (table.glossary_id == id) & (table.source == source) & (table.target == target)


def _head(dictionary: NewDictionary) -> StoredDictionary:
    return StoredDictionary(dictionary.source, dictionary.target, len(dictionary.entries))


def _fitting(glossary: StoredGlossary, source: str, target: str) -> tuple[str, str]:
    """The language pair of a glossary that serves the requested pair: the same one, else the same
    without regions, else one with other regions."""
    pairs = [(each.source, each.target) for each in glossary.dictionaries]
    if (source.lower(), target.lower()) in pairs:
        return source.lower(), target.lower()
    languages = base_language(source), base_language(target)
    alike = [
        pair for pair in pairs if (base_language(pair[0]), base_language(pair[1])) == languages
    ]
    if alike:
        return min(alike, key=lambda pair: sum("-" in code for code in pair))
    raise RequestError(
        f"the glossary must have a dictionary from {source} to {target}, it has "
        f"{', '.join(' to '.join(pair) for pair in pairs) or 'none'}; send other languages, or "
        "another glossary",
        parameter="glossary_id",
    )


def _check_pairs(dictionaries: Sequence[NewDictionary]) -> None:
    pairs = [(each.source, each.target) for each in dictionaries]
    if len(set(pairs)) < len(pairs):
        raise RequestError(
            "dictionaries must have each language pair once, got one twice; put their entries "
            "together",
            parameter="dictionaries",
        )
    if len(pairs) > MOST_DICTIONARIES:
        raise _too_many_pairs(len(pairs))


def _too_many_pairs(count: int) -> RequestError:
    return RequestError(
        f"a glossary must have at most {MOST_DICTIONARIES} dictionaries, got {count}; make several",
        parameter="dictionaries",
    )


def _unknown(id: str) -> UnknownGlossaryError:
    return UnknownGlossaryError(
        f"no glossary has the id {id[:50]!r}; list the existing ones", parameter="glossary_id"
    )


def _no_pair(id: str, source: str, target: str) -> UnknownGlossaryError:
    return UnknownGlossaryError(
        f"the glossary {id[:50]!r} has no dictionary from {source} to {target}",
        parameter="glossary_id",
    )
