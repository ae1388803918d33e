"""DeepL's translation memories, with a store in a file and a model that echoes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.documents.localisation.segments import written_tmx
from serving.server.dialects.deepl import memory_answers
from serving.server.http.settings import Settings
from tests.unit.serving.echo import EchoTranslator, served

ALL = "/v3/translation_memories"
FIRST = {"Authorization": "DeepL-Auth-Key first-key-of-sixteen"}
OTHER = {"Authorization": "DeepL-Auth-Key second-key-of-sixteen"}
TMX = b"".join(written_tmx([("Hallo", "Hello")], "de", "en"))
THREE = TMX.replace(b"</tu>", b'<tuv xml:lang="fr"><seg>x</seg></tuv></tu>')


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(
        store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"),
        api_keys=SecretStr("first-key-of-sixteen second-key-of-sixteen"),
        max_memory_bytes=5000,
        root_path="/behind",
    )
    with served(settings=settings) as (client, _):
        client.headers.update(FIRST)
        yield client


def begun(client: TestClient) -> Any:
    file = {"file_name": "m.tmx", "content_length": 10}
    answer = client.post(f"{ALL}/import", json={"source_file": file})
    assert answer.status_code == 202, answer.text
    return answer.json()


def job(client: TestClient, id: str) -> Any:
    return client.get(f"{ALL}/jobs/{id}").json()["results"][0]


def imported(client: TestClient, content: bytes = TMX) -> Any:
    new = begun(client)
    assert client.put(new["upload_url"], content=content, headers={"Authorization": ""}).is_success
    return job(client, new["job_id"])


def test_an_import_waits_for_its_file_and_reads_it_once(client: TestClient) -> None:
    new = begun(client)
    assert "/behind/v3/" in new["upload_url"]
    assert job(client, new["job_id"])["status"] == "awaiting_input"
    for _ in range(3):
        assert client.put(new["upload_url"], content=TMX).status_code == 200
    result = job(client, new["job_id"])
    assert result["status"] == "completed"
    listed = client.get(ALL).json()
    assert listed["total_count"] == 1
    assert listed["translation_memories"][0]["name"] == "m.tmx"
    assert (
        listed["translation_memories"][0]["translation_memory_id"]
        == (result["translation_memory_id"])
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<tmx><body>", "well-formed"),
        (THREE, "one language beside"),
        (b'<!DOCTYPE tmx [<!ENTITY a "b">]><tmx><body/></tmx>', "declares entities"),
        (TMX.replace(b'"de"', b'"; DROP"'), "code of a language"),
    ],
)
def test_a_file_that_cannot_be_read_fails_its_job_and_leaves_nothing(
    client: TestClient, content: bytes, said: str
) -> None:
    result = imported(client, content)
    assert result["status"] == "failed"
    assert said in result["error"]["message"]
    assert client.get(ALL).json()["total_count"] == 0


def test_files_beyond_the_limit_are_refused_before_and_when_they_come(client: TestClient) -> None:
    file = {"file_name": "m.tmx", "content_length": 5001}
    answer = client.post(f"{ALL}/import", json={"source_file": file})
    assert answer.status_code == 413
    assert "MACARON_MAX_MEMORY_BYTES" in answer.json()["message"]
    new = begun(client)
    assert client.put(new["upload_url"], content=b" " * 5001).status_code == 413
    assert job(client, new["job_id"])["status"] == "awaiting_input"


def test_addresses_lapse_and_jobs_that_were_lost_have_failed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, id = begun(client), imported(client)["translation_memory_id"]
    export = client.post(f"{ALL}/{id}/export").json()["job_id"]
    url = job(client, export)["download_url"]
    assert client.get(url).content == TMX
    monkeypatch.setattr(memory_answers, "VALID_S", -1.0)
    assert client.put(new["upload_url"], content=TMX).status_code == 404
    assert client.get(url).status_code == 404
    assert job(client, new["job_id"])["status"] == "expired"


def test_another_keys_memories_and_jobs_are_as_if_they_were_not_there(client: TestClient) -> None:
    id, new = imported(client)["translation_memory_id"], begun(client)
    text = {"text": "Hallo", "source_lang": "DE", "target_lang": "EN-US"}
    own = client.post("/v2/translate", json={**text, "translation_memory_id": id})
    assert own.json()["translations"][0]["text"] == "Hello"
    for answer in (
        client.get(f"{ALL}/{id}", headers=OTHER),
        client.delete(f"{ALL}/{id}", headers=OTHER),
        client.get(f"{ALL}/{id}/segments", headers=OTHER),
        client.post(f"{ALL}/{id}/export", headers=OTHER),
        client.get(f"{ALL}/jobs/{new['job_id']}", headers=OTHER),
        client.post("/v2/translate", json={**text, "translation_memory_id": id}, headers=OTHER),
        client.put(f"{ALL}/files/{new['job_id']}", content=TMX),
    ):
        assert answer.status_code == 404, answer.text
    assert client.get(ALL, headers=OTHER).json()["total_count"] == 0


def test_without_a_source_a_memory_is_for_the_texts_in_its_language(tmp_path: Path) -> None:
    settings = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    translators = EchoTranslator(), EchoTranslator("echo-fr-en", "fr", "en")
    pairs = [("Das Haus ist sehr groß.", "It is!"), ("La maison est très grande.", "No!")]
    with served(*translators, settings=settings) as (client, _):
        id = imported(client, b"".join(written_tmx(pairs, "de", "en")))["translation_memory_id"]
        texts = ["La maison est très grande.", "Das Haus ist sehr groß.", "7"]
        body = {"text": texts, "target_lang": "EN-US", "translation_memory_id": id}
        answer = client.post("/v2/translate", json=body).json()
        found = [(e["detected_source_language"], e["text"]) for e in answer["translations"][:2]]
        assert found == [("FR", texts[0]), ("DE", "It is!")]
        [warning] = answer["warnings"]
        assert "text[0]" in warning
        alone = client.post("/v2/translate", json={**body, "text": texts[1:]}).json()
        assert "warnings" not in alone
        refused = client.post("/v2/translate", json={**body, "target_lang": "DE"})
        assert refused.status_code == 400


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"translation_memory_threshold": 101}, "translation_memory_threshold"),
        ({"target_lang": "DE"}, "from de to en"),
    ],
)
def test_what_does_not_go_with_a_memory_is_refused(
    client: TestClient, fields: dict[str, Any], said: str
) -> None:
    id = imported(client)["translation_memory_id"]
    body = {"text": "Hallo", "source_lang": "DE", "target_lang": "EN", **fields}
    answer = client.post("/v2/translate", json={**body, "translation_memory_id": id})
    assert answer.status_code == 400
    assert said in answer.json()["message"]
