"""Stored glossaries in the native dialect, with a store in a file and a model that echoes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.arrays import Floats
from serving.server.http.settings import Settings
from tests.unit.serving.echo import LONGEST_READ, send_in_parts, served
from tests.unit.serving.search.fake_stepper import FakeModel, Slots

PAIR = {"source": "de", "target": "en"}
NEW = {
    "name": "mine",
    "dictionaries": [{**PAIR, "entries": [{"source": "Haus", "target": "home"}]}],
}


def diagonal(_: FakeModel, source: tuple[int, ...], slots: Slots) -> Floats:
    """Attention to what is being said back."""
    return np.eye(len(source), dtype=np.float32)[min(len(slots), len(source)) - 1]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(FakeModel, "attention", diagonal)
    store = SecretStr(f"sqlite:///{tmp_path / 'store.db'}")
    with served(settings=Settings(store=store)) as (client, _):
        yield client


def made(client: TestClient, **fields: Any) -> Any:
    answer = client.post("/glossaries", json={**NEW, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_glossary_comes_changes_and_goes(client: TestClient) -> None:
    found = made(client)
    path = f"/glossaries/{found['id']}"
    assert found["dictionaries"] == [{**PAIR, "entry_count": 1}]
    more = {**PAIR, "entries": "Hof,yard", "format": "csv"}
    patched = client.patch(path, json={"name": "new", "dictionaries": [more]}).json()
    assert (patched["name"], patched["dictionaries"][0]["entry_count"]) == ("new", 2)
    assert client.get(path).json() == patched
    entries = client.get(f"{path}/entries", params=PAIR).json()["entries"]
    assert entries == [{"source": "Haus", "target": "home"}, {"source": "Hof", "target": "yard"}]
    replaced = client.put(f"{path}/entries", json={**PAIR, "entries": "Tor\tgoal"})
    assert replaced.json() == {**PAIR, "entry_count": 1}
    assert client.delete(f"{path}/entries", params=PAIR).status_code == 204
    assert client.get(f"{path}/entries", params=PAIR).status_code == 404
    assert client.delete(path).status_code == 204
    assert client.get(path).json()["code"] == "unknown_glossary"


def test_lists_come_in_pages(client: TestClient) -> None:
    ids = [made(client, name=str(number))["id"] for number in range(5)]
    seen, after = [], None
    while True:
        query = {"limit": 2} | ({"after": after} if after else {})
        page = client.get("/glossaries", params=query).json()
        seen += [each["id"] for each in page["glossaries"]]
        after = page.get("next")
        if after is None:
            break
    assert seen == ids
    assert client.get("/glossaries", params={"limit": 1001}).status_code == 400
    assert client.get("/glossaries", params={"after": "x"}).status_code == 404


def test_terms_are_put_into_translations_and_streams(client: TestClient) -> None:
    body = {"q": "Das Haus. Ein Hof.", **PAIR, "glossary_id": made(client)["id"]}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == "Das home. Ein Hof."
    assert "alignment" not in answer["translations"][0]["hypotheses"][0]
    linked = client.post("/translate", json={**body, "alignments": True}).json()
    links = linked["translations"][0]["hypotheses"][0]["alignment"]
    assert [4, 8] in [each["target"] for each in links]
    text = client.post("/translate", json={**body, "stream": True}).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    partial = [event["text"] for event in events if "index" in event]
    assert all("Haus" not in each for each in partial)
    assert any("home" in each for each in partial)
    assert events[-1]["translatedText"] == "Das home. Ein Hof."


def test_a_glossary_needs_the_source_language(client: TestClient) -> None:
    body = {"q": "Das Haus", "source": "auto", "target": "en", "glossary_id": made(client)["id"]}
    answer = client.post("/translate", json=body)
    assert answer.status_code == 400
    assert "send the source language" in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "media_type"),
    [
        ("POST", "/glossaries", "application/json"),
        ("PATCH", "/glossaries/ID", "application/json"),
        ("PUT", "/glossaries/ID/entries", "application/json"),
        ("DELETE", "/glossaries/ID/entries", "application/x-www-form-urlencoded"),
    ],
)
def test_a_hundred_megabytes_are_refused_at_once(
    client: TestClient, method: str, path: str, media_type: str
) -> None:
    path = path.replace("ID", made(client)["id"])
    headers = {"Content-Type": media_type}
    declared = {**headers, "Content-Length": "100000000"}
    for sent, most_read in ((declared, 0), (headers, LONGEST_READ)):
        answer = send_in_parts(client.app, method, path, sent, b"," * 100_000, 1000)
        assert (answer.status, "at most 1048576 bytes" in answer.text) == (413, True)
        assert answer.parts_read * 100_000 <= most_read
    assert client.get("/glossaries").json()["glossaries"][0]["dictionaries"][0]["entry_count"] == 1


def test_without_a_store_lists_are_empty_and_the_rest_says_why() -> None:
    with served() as (client, _):
        assert client.get("/glossaries").json() == {"glossaries": []}
        for method, path, body in (
            ("POST", "/glossaries", NEW),
            ("GET", "/glossaries/a", None),
            ("PATCH", "/glossaries/a", {}),
            ("POST", "/translate", {"q": "a", **PAIR, "glossary_id": "a"}),
        ):
            answer = client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (501, "no_store")
            assert "MACARON_STORE" in answer.json()["error"]
