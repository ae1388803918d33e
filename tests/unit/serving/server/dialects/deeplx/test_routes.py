"""DeepLX's wire format, with models that echo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.unit.serving.echo import POISON, EchoTranslator, served

FIELDS = {"text": "Hallo", "source_lang": "DE", "target_lang": "EN"}
GERMAN = "Das ist ein ganz einfacher Satz."
KEY = "one-of-the-keys"
PATHS = ["/translate", "/v1/translate"]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    several = EchoTranslator("echo-en-fr", "en", "fr", search={"beam_size": 4, "num_hypotheses": 3})
    with served(EchoTranslator(), several, settings=Settings(max_body_bytes=4096)) as (client, _):
        yield client


def refused(client: TestClient, path: str, code: int, **fields: Any) -> str:
    response = client.post(path, json={**FIELDS, **fields})
    assert response.status_code == code, response.text
    assert response.json().keys() == {"code", "message"}
    assert response.json()["code"] == code
    message: str = response.json()["message"]
    return message


@pytest.mark.parametrize("path", PATHS)
def test_a_text(client: TestClient, path: str) -> None:
    answer = client.post(path, json=FIELDS).json()
    assert isinstance(answer.pop("id"), int)
    assert answer == {
        "code": 200,
        "data": "Hallo",
        "alternatives": [],
        "source_lang": "DE",
        "target_lang": "EN",
        "method": "Free",
    }


@pytest.mark.parametrize("left_out", [{"source_lang": ""}, {"source_lang": None}, {}])
@pytest.mark.parametrize("path", PATHS)
def test_a_source_that_is_left_out_is_detected(
    client: TestClient, path: str, left_out: dict[str, Any]
) -> None:
    fields = {"text": GERMAN, "target_lang": "en-GB", **left_out}
    for named in (fields, {**fields, "source_lang": "auto"}):
        answer = client.post(path, json=named).json()
        assert (answer["source_lang"], answer["target_lang"]) == ("DE", "en-GB")


def test_other_hypotheses_of_the_search_are_alternatives(client: TestClient) -> None:
    fields = {"text": "Hello", "source_lang": "EN", "target_lang": "FR"}
    answer = client.post("/translate", json=fields).json()
    assert answer["data"] == "Hello"
    assert 1 <= len(answer["alternatives"]) <= 2
    assert "Hello" not in answer["alternatives"]


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_tags_stay(client: TestClient, kind: str) -> None:
    text = "<p>Hallo <b>Welt</b></p>"
    answer = client.post("/translate", json={**FIELDS, "text": text, "tag_handling": kind}).json()
    assert answer["data"] == text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"text": ["Hallo"]}, 400, "text must be a valid string, got a list"),
        ({"target_lang": "XX"}, 400, "target_lang: XX is not supported"),
        ({"source_lang": "XX"}, 400, "source_lang: XX is not supported"),
        ({"target_lang": 5}, 400, "target_lang must be a valid string, got 5"),
        ({"tag_handling": "pdf"}, 400, "tag_handling must be"),
        ({"text": "a\0"}, 400, "U+0000"),
        ({"text": POISON}, 500, "non-finite"),
    ],
)
def test_refusals(
    client: TestClient, path: str, fields: dict[str, Any], code: int, message: str
) -> None:
    assert message in refused(client, path, code, **fields)


def test_a_body_over_the_limit_or_without_a_target(client: TestClient) -> None:
    assert "at most 4096 bytes" in refused(client, "/v1/translate", 413, text="x" * 5000)
    fields = {"text": "Hallo", "source_lang": "DE"}
    answer = client.post("/v1/translate", json=fields)
    assert answer.json() == {
        "code": 400,
        "message": "Invalid request: missing target_lang parameter",
    }


@pytest.mark.parametrize("path", PATHS)
def test_the_key_may_stand_in_the_query(path: str) -> None:
    with served(settings=Settings(api_keys=SecretStr(KEY))) as (client, _):
        assert client.post(f"{path}?token={KEY}", json=FIELDS).status_code == 200
        for scheme in ("Bearer", "DeepL-Auth-Key"):
            headers = {"Authorization": f"{scheme} {KEY}"}
            assert client.post(path, json=FIELDS, headers=headers).status_code == 200
        assert "API key is needed" in refused(client, path, 401)
        assert "not known" in refused(client, f"{path}?token=another-key", 401)


def test_other_bodies_of_the_path_stay_the_native_ones(client: TestClient) -> None:
    native = {"q": "Hallo", "source": "de", "target": "en"}
    assert client.post("/translate", json=native).json()["translatedText"] == "Hallo"
    for body in (b"{", b"[]", b'{"text": "a", "to": "\\"target_lang\\""}', b"null"):
        headers = {"Content-Type": "application/json"}
        answer = client.post("/translate", content=body, headers=headers)
        assert (answer.status_code, set(answer.json())) == (400, {"error", "code"})
    form = client.post("/translate", data=FIELDS)
    assert form.json()["error"] == "Invalid request: missing q parameter"
