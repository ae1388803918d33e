"""DeepL's admin API, as its documentation describes it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.days import today
from tests.unit.serving.echo import served

ADMIN = {"Authorization": "DeepL-Auth-Key an-admin-key-of-the-tests"}
KEYS = "/v2/admin/developer-keys"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(
        store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"),
        admin_key=SecretStr("an-admin-key-of-the-tests"),
    )
    with served(settings=settings) as (client, _):
        yield client


def put(client: TestClient, verb: str, **fields: Any) -> Any:
    response = client.put(f"{KEYS}/{verb}", json=fields, headers=ADMIN)
    assert response.status_code == 200, response.text
    return response.json()


def translated(client: TestClient, key: str, text: str) -> int:
    body = {"text": [text], "source_lang": "DE", "target_lang": "EN"}
    headers = {"Authorization": f"DeepL-Auth-Key {key}"}
    return client.post("/v2/translate", json=body, headers=headers).status_code


def test_a_developer_key_is_made_renamed_limited_and_deactivated(client: TestClient) -> None:
    made = client.post(KEYS, json={}, headers=ADMIN).json()
    key = made.pop("key")
    assert made["label"] == "DeepL API Key"
    assert (made["is_deactivated"], made["deactivated_time"]) == (False, None)
    assert made["usage_limits"] == {"characters": None}
    assert [uuid.UUID(part) for part in made["key_id"].split(":")]
    assert client.get(KEYS, headers=ADMIN).json() == [made]
    id = made["key_id"]
    assert put(client, "label", key_id=id, label="prod")["label"] == "prod"
    assert put(client, "limits", key_id=id, characters=12)["usage_limits"] == {"characters": 12}
    assert put(client, "limits", key_id=id)["usage_limits"] == {"characters": 12}
    assert [translated(client, key, "Hallo") for _ in range(3)] == [200, 200, 456]
    put(client, "limits", key_id=id, characters=0)
    assert translated(client, key, "a") == 456
    put(client, "limits", key_id=id, characters=None)
    assert translated(client, key, "Hallo") == 200
    ended = put(client, "deactivate", key_id=id)
    assert ended["is_deactivated"]
    assert ended["deactivated_time"].endswith("Z")
    assert put(client, "deactivate", key_id=id) == ended
    assert translated(client, key, "Hallo") == 403


def test_what_is_wrong_is_said_in_deepls_shape(client: TestClient) -> None:
    unknown = client.put(f"{KEYS}/label", json={"key_id": "a:b", "label": "c"}, headers=ADMIN)
    missing = client.put(f"{KEYS}/label", json={"key_id": "a:b"}, headers=ADMIN)
    speech = {"key_id": "a:b", "speech_to_text_milliseconds": 5}
    refused = client.put(f"{KEYS}/limits", json=speech, headers=ADMIN)
    wrong = client.get(KEYS, headers={"Authorization": "DeepL-Auth-Key not-the-admin-key-at-all"})
    statuses = [answer.status_code for answer in (unknown, missing, refused, wrong)]
    assert statuses == [404, 400, 400, 403]
    assert all(set(answer.json()) == {"message", "code"} for answer in (unknown, missing, wrong))


def test_analytics_say_what_was_used(client: TestClient) -> None:
    day = today()
    made = [client.post(KEYS, json={"label": name}, headers=ADMIN).json() for name in "ab"]
    for number, each in enumerate(made):
        for _ in range(number + 1):
            assert translated(client, each["key"], "Hallo") == 200

    def report(**query: str) -> Any:
        dates = {"start_date": day[:8] + "01", "end_date": day + "T23:59:59"}
        response = client.get("/v2/admin/analytics", params={**dates, **query}, headers=ADMIN)
        assert response.status_code == 200, response.text
        return response.json()["usage_report"]

    whole = report()
    assert whole["total_usage"]["total_characters"] == 15
    assert whole["total_usage"]["text_translation_characters"] == 15
    assert whole["end_date"] == f"{day}T00:00:00Z"
    assert not {"group_by", "key_usages", "key_and_day_usages"} & set(whole)
    by_key = report(group_by="key")["key_usages"]
    assert [each["api_key_label"] for each in by_key] == ["a", "b"]
    assert [each["usage"]["total_characters"] for each in by_key] == [5, 10]
    by_day = report(group_by="key_and_day")["key_and_day_usages"]
    assert {each["usage_date"] for each in by_day} == {f"{day}T00:00:00Z"}
    id = made[0]["key_id"].split(":")[1]
    assert by_day[0]["api_key"] == f"{id[:4]}****{id[-4:]}"
    for query in ({"start_date": day}, {"start_date": day, "end_date": day, "group_by": "x"}):
        refused = client.get("/v2/admin/analytics", params=query, headers=ADMIN)
        assert refused.status_code == 400
