"""Databases of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.store.store import Store
from tests.stores import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server = request.getfixturevalue("postgresql")
    if server is None:
        pytest.skip("needs the programs of PostgreSQL")
    return fresh_database(server)


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Store]]:
    """Opens the same database again and again, as several servers do."""
    stores = []

    def open_store() -> Store:
        stores.append(Store(url, Path("/nowhere")))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    """A store over an empty database."""
    return opened()
