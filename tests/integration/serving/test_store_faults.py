"""A store that goes away in the middle of requests and comes back, and one whose disk is full."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.days import today
from tests.stores import stoppable_postgresql
from tests.unit.serving.echo import EchoTranslator, served, wait_until

ADMIN = {"Authorization": "Bearer an-admin-key-of-the-tests"}
TEXT = {"q": "Hallo", "source": "de", "target": "en"}
ENTRIES = [{"source": "a", "target": "b"}]
GLOSSARY = {"name": "g", "dictionaries": [{"source": "de", "target": "en", "entries": ENTRIES}]}
FORM: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("a", b"x" * 200_000)}}


def settings(store: str, files: Path) -> Settings:
    admin = SecretStr("an-admin-key-of-the-tests")
    return Settings(store=SecretStr(store), files=str(files), admin_key=admin)


def new_key(http: TestClient) -> dict[str, str]:
    made = http.post("/admin/keys", json={}, headers=ADMIN)
    return {"X-API-Key": made.json()["key"]}


def needs_the_store(http: TestClient, key: dict[str, str]) -> Iterator[Any]:
    """Answers of what cannot be done without the store."""
    yield http.post("/glossaries", json=GLOSSARY, headers=key)
    yield http.post("/v1/files", headers=key, **FORM)


def characters(http: TestClient, key: dict[str, str]) -> int:
    return int(http.get("/v2/usage", headers=key).json()["character_count"])


def test_a_database_that_goes_away_while_requests_run_costs_none_and_comes_back(
    tmp_path: Path,
) -> None:
    with stoppable_postgresql() as server:
        if server is None:
            pytest.skip("needs the programs of PostgreSQL")
        echo = EchoTranslator()
        with (
            served(echo, settings=settings(server.url, tmp_path / "files")) as (http, _),
            ThreadPoolExecutor(8) as pool,
        ):
            today()
            key = new_key(http)
            assert http.post("/translate", json=TEXT, headers=key).status_code == 200
            echo.stepper.gate.clear()
            running = [
                pool.submit(http.post, "/translate", json={**TEXT, "q": f"Nr. {n}"}, headers=key)
                for n in range(8)
            ]
            time.sleep(0.3)
            server.stop()
            echo.stepper.gate.set()
            try:
                assert [each.result().status_code for each in running] == [200] * 8
                assert http.post("/translate", json=TEXT, headers=key).status_code == 200
                for answer in needs_the_store(http, key):
                    assert answer.status_code == 503, answer.text
                    assert int(answer.headers["Retry-After"]) > 0
                    assert "SELECT" not in answer.text
            finally:
                server.start()
            wait_until(lambda: http.post("/glossaries", json=GLOSSARY, headers=key).is_success)
            assert [answer.status_code for answer in needs_the_store(http, key)] == [201, 200]
            sent = 2 * 5 + sum(len(f"Nr. {n}") for n in range(8))
            wait_until(lambda: characters(http, key) == sent)
            assert len(list((tmp_path / "files").glob("file-*"))) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until there is no space left, which is an error."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk_costs_only_what_would_be_kept(small_disk: Path) -> None:
    today()
    store, files = f"sqlite:///{small_disk / 'store.db'}", small_disk / "files"
    with served(EchoTranslator(), settings=settings(store, files)) as (http, _):
        key = new_key(http)
        assert [answer.status_code for answer in needs_the_store(http, key)] == [201, 200]
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            fill(filler)
        for _ in range(3):
            assert http.post("/translate", json=TEXT, headers=key).status_code == 200
            time.sleep(0.5)
        for answer in needs_the_store(http, key):
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["Retry-After"]) > 0
        filler.unlink()
        wait_until(lambda: http.post("/glossaries", json=GLOSSARY, headers=key).is_success)
        assert [answer.status_code for answer in needs_the_store(http, key)] == [201, 200]
        wait_until(lambda: characters(http, key) == 3 * 5)
        assert len(list(files.iterdir())) == 2  # nothing of what was refused
