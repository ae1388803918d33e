"""The database: its location, its transactions, and its schema.

SQLite has a file beside the bundles, and a journal that lets readers read during a write;
PostgreSQL is for several servers. Both are used from threads, never from the event loop.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, MetaData, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from serving.errors import RequestError, SettingsError, StoreUnavailableError, install_command

METADATA = MetaData()
"""The tables, which the modules of this package define. Times are seconds since 1970, in UTC."""

OWNED = {"owned": True}
"""`info` of a table whose rows are deleted together with the key that owns them. Usage counts and
rows that expire are not marked."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_S = 10
"""Seconds that a writer waits for another writer."""
_RETRY_S = 0.01
_CONNECTIONS = 8
_MIGRATION_LOCK = 0x6D616361
"""Number of the lock that a process holds on PostgreSQL while it brings the schema up to date; it
is arbitrary."""


class Database:
    """A database, whose schema is brought up to date when it is opened."""

    def __init__(self, url: str, folder: Path) -> None:
        """Open `sqlite:///FILE` (relative to `folder`; a fourth slash begins an absolute path) or
        `postgresql://...`. Creates missing tables and updates an older schema.

        Raises SettingsError for another kind of URL and for a database that a newer version has
        written, and StoreUnavailableError if it cannot be reached.
        """
        self._engine = _engine(_parsed(url, folder))
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database."""
        return Path(str(self._engine.url.database)) if self.dialect == "sqlite" else None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for a transaction that reads. Raises StoreUnavailableError."""
        with _our_errors(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection for a transaction that writes. It is committed at its end, and rolled back
        after an error. Raises StoreUnavailableError."""
        with _our_errors(), self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def alone(self, connection: Connection, table: str, owner: str = "") -> None:
        """Keep others from adding rows of an owner to a table until this writing transaction ends.
        Otherwise several transactions that count the rows at once could each find room for one
        more."""
        if self.dialect == "postgresql":  # SQLite has only one writer in any case
            digest = hashlib.sha256(f"{table}/{owner}".encode()).digest()
            key = int.from_bytes(digest[:8], signed=True)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})

    def close(self) -> None:
        """Close the connections; the database can be opened again."""
        self._engine.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with self.writing() as connection:
            # Two servers that start at once: the second waits, and finds nothing left to do.
            if self.dialect == "postgresql":
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
                )
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                newest = ScriptDirectory.from_config(config).get_current_head()
                raise SettingsError(
                    "MACARON_STORE must be a database of this version of Macaron or an older one "
                    f"(its newest step is {newest}), got a newer one ({error}); update Macaron, "
                    "or name another database"
                ) from error


def now() -> float:
    """The present time in seconds since 1970, as in the tables."""
    return time.time()


def _parsed(url: str, folder: Path) -> URL:
    expected = "MACARON_STORE must be sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise SettingsError(f"{expected}, got no URL") from error
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed.set(drivername="sqlite", database=str(folder / str(parsed.database)))
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    got = parsed.render_as_string(hide_password=True)
    raise SettingsError(f"{expected}, got {got!r}")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(
            url,
            pool_size=_CONNECTIONS,
            pool_pre_ping=True,  # a database that went away and came back is used again
            pool_timeout=_BUSY_S,
            connect_args={"connect_timeout": _BUSY_S},
        )
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"MACARON_STORE on PostgreSQL needs {error.name}; install it with "
            f"`{install_command('postgresql')}`"
        ) from error


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the driver's own rules leave out BEGIN before DDL
    cursor = connection.cursor()
    _keep_a_journal(cursor)
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
    # SQLite's own function knows only ASCII letters.
    connection.create_function("lower", 1, str.lower, deterministic=True)


def _keep_a_journal(cursor: Any) -> None:
    # Of several connections that open a new file at once one changes its journal. SQLite refuses
    # the others without waiting: each holds a lock that the change of another one waits for.
    end = time.monotonic() + _BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(_RETRY_S)


def _begin_sqlite(connection: Connection) -> None:
    # A reader that begins to write later is refused at once if another one writes; a writer that
    # announces it at the beginning waits for its turn.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _our_errors() -> Iterator[None]:
    """Convert the database's errors to this package's errors, without its statements and their
    values."""
    try:
        yield
    except PoolTimeoutError as error:
        raise StoreUnavailableError("the store is too busy; try again later") from error
    except DBAPIError as error:
        kind = type(error).__name__
        reason = (str(error.orig).strip().splitlines() or [""])[0]
        if kind in ("OperationalError", "InterfaceError", "InternalError"):
            raise StoreUnavailableError(
                f"the store does not answer ({reason}); try again later"
            ) from error
        if kind == "DataError":
            raise RequestError(f"the store cannot store this value ({reason})") from error
        raise
