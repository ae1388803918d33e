"""Translation memories in the database, and the recently used indexes in memory."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from serving.errors import QuotaExceededError, RequestError, UnknownMemoryError
from serving.store.database import METADATA, OWNED, Database, now
from serving.store.indexes import IndexCache
from serving.store.records.memory import MemoryLimits, StoredMemory, StoredSegment
from serving.store.records.name import is_id
from serving.text.languages import base_language
from serving.text.memory.index import SegmentIndex
from serving.text.memory.lookup import lookup
from serving.text.memory.segments import MemoryUse, Recalled, Segment, key_of

_MEMORIES = Table(
    "memories",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", String(35), nullable=False),
    Column("target", String(35), nullable=False),
    Column("segment_count", Integer, nullable=False),
    Index("ix_memories_owner", "owner", "created", "id"),
    info=OWNED,
)
_SEGMENTS = Table(
    "memory_segments",
    METADATA,
    Column("memory_id", ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True),
    # From 0 on, without gaps: segments are appended, and never deleted one by one.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("created", Float, nullable=False),
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
)
_PAGE = 2000
"""Number of segments that are written, or read, at once; another writer waits for no more than
these."""
_AT_ONCE = 500
"""Largest number of values in one query: SQLite accepts a few hundred."""
_CACHED_BYTES = 10**9
"""Largest size in bytes of the indexes that are kept in memory: about three million segments of 100
characters. The most recently used one is kept whatever its size."""


class Memories:
    """Translation memories by owner; safe to use from several threads.

    An id that does not belong to a memory of the owner raises UnknownMemoryError. Every call raises
    StoreUnavailableError if the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._indexes = IndexCache[str, SegmentIndex](_CACHED_BYTES, lambda each: each.num_bytes)

    def create(
        self, owner: str, name: str, source: str, target: str, limits: MemoryLimits
    ) -> StoredMemory:
        """Store a new memory without segments. Raises QuotaExceededError if the owner already has
        the largest number of memories."""
        time = now()
        made = StoredMemory(str(uuid.uuid4()), name, source, target, time, time, 0)
        with self._database.writing() as connection:
            self._database.alone(connection, _MEMORIES.name, owner)
            owned = select(func.count()).where(_MEMORIES.c.owner == owner)
            if connection.execute(owned).scalar_one() >= limits.memories:
                raise QuotaExceededError(
                    f"at most {limits.memories} memories (MACARON_MAX_MEMORIES) are kept for a "
                    "key; delete one"
                )
            row = {"owner": owner, **dataclasses.asdict(made)}
            connection.execute(insert(_MEMORIES), row)
        return made

    def page(
        self, owner: str, after: str | None = None, limit: int | None = None
    ) -> list[StoredMemory]:
        """The memories of an owner, the oldest first: at most `limit` of those behind the memory
        `after`, by default all."""
        order = _MEMORIES.c.created, _MEMORIES.c.id
        wanted = select(_MEMORIES).where(_MEMORIES.c.owner == owner).order_by(*order).limit(limit)
        with self._database.reading() as connection:
            if after is not None:
                last = _one(connection, owner, after)
                wanted = wanted.where(tuple_(*order) > tuple_(last.created, last.id))
            return [_record(row) for row in connection.execute(wanted)]

    def get(self, owner: str, id: str) -> StoredMemory:
        """The record of a memory, without its segments."""
        with self._database.reading() as connection:
            return _one(connection, owner, id)

    def delete(self, owner: str, id: str) -> None:
        """Delete a memory and its segments."""
        with self._database.writing() as connection:
            _one(connection, owner, id, lock=True)
            connection.execute(delete(_MEMORIES).where(_MEMORIES.c.id == id))
        self._indexes.drop(id)

    def add(
        self, owner: str, id: str, segments: Iterable[Segment], limits: MemoryLimits
    ) -> StoredMemory:
        """Add segments, a few thousand at a time; after an error, those already added stay. Of
        several segments with the same sentence the last one counts.

        Raises what `segments` does, and QuotaExceededError for more segments than a memory may
        have.
        """
        found = self.get(owner, id)
        rest = iter(segments)
        for part in iter(lambda: list(islice(rest, _PAGE)), []):
            found = self._add(owner, id, part, limits)
        return found

    def segments(
        self,
        owner: str,
        id: str,
        after: int = -1,
        limit: int = _PAGE,
        text: str = "",
        *,
        match_case: bool = False,
    ) -> list[StoredSegment]:
        """At most `limit` segments with a number above `after`, in order of their numbers; with
        `text`, those that contain it in either language."""
        table = _SEGMENTS.c
        wanted = (
            select(table.number, table.source, table.target, table.created)
            .where(table.memory_id == id, table.number > after)
            .order_by(table.number)
            .limit(limit)
        )
        if text:
            wanted = wanted.where(self._holds(text, match_case=match_case))
        with self._database.reading() as connection:
            _one(connection, owner, id)
            return [StoredSegment(*row) for row in connection.execute(wanted)]

    def every_segment(self, owner: str, id: str) -> Iterator[Segment]:
        """Yield all segments, in order; they are read from the database as needed."""
        last = -1
        while page := self.segments(owner, id, last):
            yield from (Segment(each.source, each.target) for each in page)
            last = page[-1].number

    def use(
        self, owner: str, id: str, source: str | None, target: str, threshold: float
    ) -> MemoryUse:
        """A memory for use with texts of these languages; it also serves the same languages with
        other regions. Without a source, texts may be in any language, and only those in the
        memory's own are looked up.

        If its index is not in memory, it is built, which takes some 15 seconds for a million
        segments. Raises RequestError if the memory is for other languages.
        """
        memory = self.get(owner, id)
        _check_languages(memory, source, target)
        languages = memory.source, memory.target

        def grown(kept: SegmentIndex | None) -> SegmentIndex:
            kept = kept or SegmentIndex()
            whole = len(kept) >= memory.segment_count
            return kept if whole else kept.extended(self._keys(owner, id, len(kept) - 1))

        index = self._indexes.up_to_date(id, grown)

        def find(sentences: Sequence[str], at_least: float) -> list[Recalled | None]:
            return lookup(
                index,
                lambda numbers: self._fetch(owner, id, sorted(numbers)),
                sentences,
                at_least,
                languages,
            )

        return MemoryUse(find, threshold, source=memory.source)

    def _add(
        self, owner: str, id: str, segments: Sequence[Segment], limits: MemoryLimits
    ) -> StoredMemory:
        with self._database.writing() as connection:
            memory = _one(connection, owner, id, lock=True)
            count = memory.segment_count + len(segments)
            if count > limits.segments:
                raise QuotaExceededError(
                    f"a memory has at most {limits.segments} segments "
                    "(MACARON_MAX_MEMORY_SEGMENTS); make another one"
                )
            time = now()
            rows = [
                {
                    "memory_id": id,
                    "number": number,
                    "created": time,
                    "source": segment.source,
                    "target": segment.target,
                }
                for number, segment in enumerate(segments, memory.segment_count)
            ]
            connection.execute(insert(_SEGMENTS), rows)
            own = update(_MEMORIES).where(_MEMORIES.c.id == id)
            connection.execute(own.values(segment_count=count, updated=time))
        return dataclasses.replace(memory, segment_count=count, updated=time)

    def _keys(self, owner: str, id: str, after: int) -> Iterator[str]:
        while page := self.segments(owner, id, after):
            yield from (key_of(each.source) for each in page)
            after = page[-1].number

    def _fetch(self, owner: str, id: str, numbers: Sequence[int]) -> dict[int, Segment]:
        table, found = _SEGMENTS.c, {}
        with self._database.reading() as connection:
            _one(connection, owner, id)
            for begin in range(0, len(numbers), _AT_ONCE):
                wanted = select(table.number, table.source, table.target).where(
                    table.memory_id == id, table.number.in_(numbers[begin : begin + _AT_ONCE])
                )
                found.update({row.number: Segment(*row[1:]) for row in connection.execute(wanted)})
        return found

    def _holds(self, text: str, *, match_case: bool) -> ColumnElement[bool]:
        place = func.instr if self._database.dialect == "sqlite" else func.strpos
        columns = _SEGMENTS.c.source, _SEGMENTS.c.target
        if match_case:
            return or_(*(place(column, text) > 0 for column in columns))
        return or_(*(place(func.lower(column), func.lower(text)) > 0 for column in columns))


def _one(connection: Connection, owner: str, id: str, *, lock: bool = False) -> StoredMemory:
    """The record of a memory. With `lock` nobody else can change it until the transaction ends."""
    wanted = select(_MEMORIES).where(_MEMORIES.c.owner == owner, _MEMORIES.c.id == id)
    row = None
    if is_id(id):
        row = connection.execute(wanted.with_for_update() if lock else wanted).first()
    if row is None:
        raise UnknownMemoryError(
            f"no memory has the id {id[:50]!r}; list the existing ones", parameter="memory_id"
        )
    return _record(row)


def _record(row: Row[Any]) -> StoredMemory:
    return StoredMemory(
        id=row.id,
        name=row.name,
        source=row.source,
        target=row.target,
        created=row.created,
        updated=row.updated,
        segment_count=row.segment_count,
    )


def _check_languages(memory: StoredMemory, source: str | None, target: str) -> None:
    asked = (memory.source if source is None else source), target
    if list(map(base_language, (memory.source, memory.target))) != list(map(base_language, asked)):
        wanted = f"into {target}" if source is None else f"from {source} to {target}"
        raise RequestError(
            f"the memory must be {wanted}, it is from {memory.source} to "
            f"{memory.target}; send other languages, or another memory",
            parameter="memory_id",
        )
