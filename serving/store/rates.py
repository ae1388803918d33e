"""Rate limits per minute that several servers share: the amount that each client has taken from its
bucket."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from sqlalchemy import Column, Connection, Float, LargeBinary, Table, delete, func, select, text
from sqlalchemy.dialects import postgresql, sqlite

from serving.store.database import METADATA, Database

_RATES = Table(
    "rates",
    METADATA,
    Column("bucket", LargeBinary(32), primary_key=True),
    Column("missing_s", Float, nullable=False),
    Column("at", Float, nullable=False),
)
"""The time when a bucket was last taken from, and the seconds that it then needed to be full."""


class StoredRates:
    """The token buckets of the clients of one database. Each is identified by a digest, so that no
    addresses are stored, and is deleted once it is full."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, taken: Mapping[bytes, float]) -> dict[bytes, float]:
        """Take from buckets. Amounts are given as the seconds in which a bucket refills by as much;
        a negative number puts back. Returns the seconds that each bucket then needs to be full;
        negative ones mean that it is full. The names are digests of 32 bytes.

        The clock is the database's, because those of servers differ; if it is set back, buckets do
        not fill until it has caught up. Raises StoreUnavailableError.
        """
        with self._database.writing() as connection:
            now = self._clock(connection)
            missing = self._taken(connection, taken, now)
            # Last, because it waits for nobody; otherwise two servers could wait for each other.
            full = _RATES.c.at + _RATES.c.missing_s < now
            free = select(_RATES.c.bucket).where(full).with_for_update(skip_locked=True)
            connection.execute(delete(_RATES).where(_RATES.c.bucket.in_(free)))
            return missing

    def missing(self, buckets: Collection[bytes]) -> dict[bytes, float]:
        """The seconds that buckets need to be full; negative ones mean that they are full. Deleted
        buckets are missing from the result. Raises StoreUnavailableError."""
        with self._database.reading() as connection:
            now = self._clock(connection)
            found = connection.execute(select(_RATES).where(_RATES.c.bucket.in_(buckets)))
            return {bytes(name): missing_s - max(0.0, now - at) for name, missing_s, at in found}

    def _taken(
        self, connection: Connection, taken: Mapping[bytes, float], now: float
    ) -> dict[bytes, float]:
        on_sqlite = self._database.dialect == "sqlite"
        larger = func.max if on_sqlite else func.greatest
        more = (sqlite if on_sqlite else postgresql).insert(_RATES)
        filled = larger(more.excluded.at - _RATES.c.at, 0.0)
        missing = larger(_RATES.c.missing_s - filled, 0.0) + more.excluded.missing_s
        statement = more.on_conflict_do_update(
            index_elements=["bucket"], set_={"missing_s": missing, "at": more.excluded.at}
        ).returning(_RATES.c.bucket, _RATES.c.missing_s)
        # In order, as every server does, for the same reason.
        rows = [{"bucket": b, "missing_s": s, "at": now} for b, s in sorted(taken.items())]
        return {bytes(bucket): seconds for bucket, seconds in connection.execute(statement, rows)}

    def _clock(self, connection: Connection) -> float:
        """The database's time in seconds since 1970."""
        if self._database.dialect == "sqlite":  # its servers are on one machine
            return time.time()
        now = text("SELECT extract(epoch FROM clock_timestamp())")
        return float(connection.execute(now).scalar_one())
