"""The database: transactions, errors, and how it comes up to date."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from serving.errors import SettingsError, StoreUnavailableError
from serving.store.database import METADATA, Database
from serving.store.store import Store


def test_the_steps_lead_to_the_tables_that_the_code_names(store: Store) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

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


def test_what_an_error_ends_is_undone(store: Store) -> None:
    with store.database.writing() as connection:
        connection.execute(text("CREATE TABLE kept (n INTEGER)"))
    with contextlib.suppress(RuntimeError), store.database.writing() as connection:
        connection.execute(text("INSERT INTO kept VALUES (1)"))
        raise RuntimeError
    assert _count(store) == 0


def test_a_step_that_was_interrupted_is_done_again(url: str, tmp_path: Path) -> None:
    Store(url, tmp_path).close()
    database = Database(url, tmp_path)
    with contextlib.suppress(KeyboardInterrupt), database.writing() as connection:
        connection.execute(text("CREATE TABLE half (n INTEGER)"))
        raise KeyboardInterrupt
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE half (n INTEGER)"))
    database.close()


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
