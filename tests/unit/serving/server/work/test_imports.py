"""Imports of models over HTTP, with a process that stands for `macaron pull`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.errors import SettingsError
from serving.server.http.settings import Settings
from serving.server.work import imports
from tests.unit.serving.echo import served, wait_until

ADMIN_KEY = "an-admin-key-of-the-tests"
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
INTENTS = Path(__file__).resolve().parents[5] / "models" / "intents"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("MACARON_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bundles").mkdir()
    key = SecretStr(ADMIN_KEY)
    settings = Settings(bundles=tmp_path / "bundles", admin_key=key, model_imports=True)
    with served(settings=settings) as (client, _):
        yield client


def pulls(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let a program in Python stand for the process that pulls."""
    monkeypatch.setattr(imports, "_command", lambda _: [sys.executable, "-c", program])


def begun(client: TestClient, name: str = "a/model") -> Any:
    return client.post("/admin/imports", json={"name": name}, headers=ADMIN)


def told(client: TestClient) -> Any:
    return client.get("/admin/imports", headers=ADMIN).json()


def ended(client: TestClient) -> Any:
    """The report of an import that has ended."""
    wait_until(lambda: told(client)["state"] != "running")
    return told(client)


def test_without_the_setting_nothing_is_imported() -> None:
    with served(settings=Settings(admin_key=SecretStr(ADMIN_KEY))) as (client, _):
        answer = begun(client)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_imports")
        assert "can set MACARON_MODEL_IMPORTS=on" in answer.json()["error"]
        assert client.get("/models").json()["imports"] is False


def test_the_setting_needs_an_admin_key() -> None:
    with pytest.raises(SettingsError, match="MACARON_MODEL_IMPORTS needs MACARON_ADMIN_KEY"):
        Settings.from_environment({"MACARON_MODEL_IMPORTS": "on"})


@pytest.mark.parametrize("name", ["", "/etc", "firefox:", "https://host/file", "a/b\0c"])
def test_what_is_no_name_is_refused(client: TestClient, name: str) -> None:
    assert begun(client, name).status_code == 400
    assert told(client)["state"] == "none"


def test_another_key_imports_nothing(client: TestClient) -> None:
    head = {"Authorization": "Bearer not-the-admin-key"}
    assert client.post("/admin/imports", json={"name": "a/b"}, headers=head).status_code == 401


def test_one_model_is_imported_at_a_time_and_can_be_stopped(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = r"import sys,time; sys.stderr.write('a line\n\r10 %\r20 %'); sys.stderr.flush()"
    pulls(monkeypatch, f"{written}; time.sleep(60)")
    assert begun(client).status_code == 202
    wait_until(lambda: told(client)["lines"] == ["a line", "20 %"])
    again = begun(client, "another/model")
    assert (again.status_code, again.json()["code"]) == (409, "importing")
    assert again.json()["error"].startswith("a/model is being imported")
    assert client.delete("/admin/imports", headers=ADMIN).json()["state"] == "running"
    assert ended(client)["state"] == "stopped"


def test_why_an_import_fails_is_reported(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls(monkeypatch, "import sys; print('1 MB'); sys.exit('4 MB\\nerror: a/model: is gated')")
    begun(client)
    report = ended(client)
    assert (report["state"], report["error"]) == ("failed", "a/model: is gated")
    assert (report["lines"], report["model"]) == (["4 MB"], None)


def test_a_model_of_a_name_that_is_taken_is_not_served(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(INTENTS, tmp_path / "bundles" / "mine")
    pulls(monkeypatch, f"print({str(INTENTS)!r})")
    begun(client)
    assert "a model called 'intents' is served already" in ended(client)["error"]
    assert not (tmp_path / "bundles" / "a--model").exists()
