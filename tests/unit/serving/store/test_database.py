"""The database: transactions, errors, and how it comes up to date."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text

from serving.errors import SettingsError, StoreUnavailableError
from serving.store import migrations
from serving.store.database import METADATA, Database
from serving.store.store import Store

MIGRATIONS = Path(str(migrations.__file__)).parent
STEPS = tuple(ScriptDirectory(str(MIGRATIONS)).walk_revisions())[::-1]
VERSION = "alembic_version"
NOTES_A_STEP = (f"INSERT INTO {VERSION}", f"UPDATE {VERSION}")
CHANGES = {"0001": 5, "0002": 6, "0003": 6, "0004": 8, "0005": 5, "0006": 2}
"""Statements of each step that change something, that which notes the step included."""


def test_the_steps_lead_to_the_tables_that_the_code_names(store: Store) -> None:
    with store.database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_servers_that_start_at_once_bring_it_up_to_date_once(
    opened: Callable[[], Store],
) -> None:
    errors = []

    def start() -> None:
        try:
            opened()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_server_waits_for_another_one_that_begins_the_file(tmp_path: Path) -> None:
    """SQLite itself waits for a lock, but not to change the journal of a file."""
    first = sqlite3.connect(tmp_path / "store.db", isolation_level=None, check_same_thread=False)
    first.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.3, lambda: first.execute("COMMIT"))
    done.start()
    Database("sqlite:///store.db", tmp_path).close()
    done.join()
    first.close()


def test_what_an_error_ends_is_undone(store: Store) -> None:
    with store.database.writing() as connection:
        connection.execute(text("CREATE TABLE kept (n INTEGER)"))
    with contextlib.suppress(RuntimeError), store.database.writing() as connection:
        connection.execute(text("INSERT INTO kept VALUES (1)"))
        raise RuntimeError
    assert _count(store) == 0


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.revision)
def test_a_step_that_was_interrupted_is_done_again(url: str, tmp_path: Path, step: Script) -> None:
    """After each statement of a step, by an error and by the end of the process; then whole."""
    _bring_to(url, step.down_revision)
    before, changes = _picture(url), list[str]()
    while not changes or not changes[-1].startswith(NOTES_A_STEP):
        with _after_change(len(changes) + 1, _raise, changes), pytest.raises(InterruptedError):
            Store(url, tmp_path)
        assert _picture(url) == before
        assert _killed(url, tmp_path, len(changes)) == -signal.SIGKILL
        assert _picture(url) == before
    assert len(changes) == CHANGES[step.revision], changes
    store = Store(url, tmp_path)
    assert _picture(url)[:2] == (STEPS[-1].revision, sorted([*METADATA.tables, VERSION]))
    assert _picture(url)[2] == before[2]
    with store.database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    store.close()


def _bring_to(url: str, revision: object) -> None:
    """Have an older version make the database, and a user a glossary in it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with _plain(url) as connection:
        config.attributes["connection"] = connection
        if revision is not None:
            command.upgrade(config, str(revision))
            connection.execute(text("INSERT INTO glossaries VALUES ('id', 'me', 1.5, 'kept')"))


def _picture(url: str) -> tuple[str | None, list[str], list[str]]:
    """The step that a database has come to, its tables, and the names of glossaries."""
    with _plain(url) as connection:
        tables = sorted(inspect(connection).get_table_names())
        version = MigrationContext.configure(connection).get_current_revision()
        kept = connection.execute(text("SELECT name FROM glossaries")) if version else ()
        return version, tables, [name for (name,) in kept]


@contextlib.contextmanager
def _plain(url: str) -> Iterator[Connection]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@contextlib.contextmanager
def _after_change(number: int, act: Callable[[], None], changes: list[str]) -> Iterator[None]:
    """Act after the statement of this number that changes something, and note that one."""
    seen = 0

    def count(_: object, __: object, statement: str, *___: object) -> None:
        nonlocal seen
        if statement.split()[0] in ("ALTER", "CREATE", "DELETE", "DROP", "INSERT", "UPDATE"):
            seen += 1
            if seen == number:
                changes.append(statement)
                act()

    event.listen(Engine, "after_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", count)


def _raise() -> None:
    raise InterruptedError


def _killed(url: str, folder: Path, number: int) -> int | None:
    """How a process ends that is killed after a change of a migration."""

    def start() -> None:
        with _after_change(number, lambda: os.kill(os.getpid(), signal.SIGKILL), []):
            Store(url, folder)

    # Forked, for it has all modules already: there is one for each statement.
    process = multiprocessing.get_context("fork").Process(target=start)
    process.start()
    process.join(30)
    return process.exitcode


def test_writers_wait_for_each_other(store: Store) -> None:
    with store.database.writing() as connection:
        connection.execute(text("CREATE TABLE kept (n INTEGER)"))
        connection.execute(text("INSERT INTO kept VALUES (0)"))

    def add() -> None:
        for _ in range(25):
            with store.database.writing() as connection:
                _lock(connection, store.database.dialect)
                before = connection.execute(text("SELECT n FROM kept")).scalar_one()
                connection.execute(text("UPDATE kept SET n = :n"), {"n": before + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.database.reading() as connection:
        assert connection.execute(text("SELECT n FROM kept")).scalar_one() == 100


def _lock(connection: Connection, dialect: str) -> None:
    if dialect == "postgresql":  # on SQLite there is one writer at a time
        connection.execute(text("SELECT n FROM kept FOR UPDATE"))


def _count(store: Store) -> int:
    with store.database.reading() as connection:
        return int(connection.execute(text("SELECT count(*) FROM kept")).scalar_one())


def test_a_newer_database_is_refused(url: str, tmp_path: Path) -> None:
    database = Database(url, tmp_path)
    with database.writing() as connection:
        connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
    database.close()
    with pytest.raises(SettingsError, match="got a newer one"):
        Database(url, tmp_path)


@pytest.mark.parametrize(
    "url",
    ["", "store.db", "sqlite://", "sqlite:///:memory:", "mysql://root:secret@host/db"],
)
def test_another_url_is_refused_and_its_password_is_not_reported(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="must be sqlite:///FILE") as raised:
        Database(url, tmp_path)
    assert "secret" not in str(raised.value)


def test_a_relative_file_lies_in_the_folder(tmp_path: Path) -> None:
    Database("sqlite:///kept.db", tmp_path).close()
    assert (tmp_path / "kept.db").is_file()


def test_a_database_that_is_not_there_is_reported_without_its_statements(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="does not answer") as raised:
        Database("postgresql://someone:secret@127.0.0.1:1/nothing", tmp_path)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="unable to open"):
        Database(f"sqlite:///{tmp_path}/none/store.db", tmp_path)
