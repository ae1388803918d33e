"""Google Translate's wire format, with models that echo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.unit.serving.echo import POISON, EchoTranslator, served

PATH = "/language/translate/v2"
FIELDS = {"q": "Hallo", "source": "de", "target": "en"}
GERMAN = "Das ist ein ganz einfacher Satz."
KEY = "one-of-the-keys"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [EchoTranslator(), EchoTranslator("echo-en-zh", "en", "zh-Hans")]
    with served(*translators, settings=Settings(max_body_bytes=65536)) as (client, _):
        yield client


def as_json(client: TestClient, fields: dict[str, Any], path: str = PATH) -> httpx.Response:
    return client.post(path, json=fields)


def as_form(client: TestClient, fields: dict[str, Any], path: str = PATH) -> httpx.Response:
    return client.post(path, data=fields)


def as_query(client: TestClient, fields: dict[str, Any], path: str = PATH) -> httpx.Response:
    return client.get(path, params=fields)


ALL = [as_json, as_form, as_query]


def refused(response: httpx.Response, code: int, status: str) -> str:
    assert response.status_code == code, response.text
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (code, status)
    [item] = error["errors"]
    assert item == {"message": error["message"], "domain": "global", "reason": item["reason"]}
    message: str = error["message"]
    return message


@pytest.mark.parametrize("ask", ALL)
@pytest.mark.parametrize("q", ["Hallo", ["Hallo"], ["Hallo", "", "Welt 👋"]])
def test_texts_in_order(client: TestClient, ask: Any, q: str | list[str]) -> None:
    response = ask(client, {**FIELDS, "q": q, "format": "text"})
    assert response.status_code == 200, response.text
    texts = [q] if isinstance(q, str) else q
    assert response.json() == {
        "data": {"translations": [{"translatedText": text} for text in texts]}
    }


@pytest.mark.parametrize("ask", ALL)
def test_a_source_that_is_left_out_is_detected(client: TestClient, ask: Any) -> None:
    response = ask(client, {"q": GERMAN, "target": "en-GB"})
    assert response.json()["data"]["translations"] == [
        {"translatedText": GERMAN, "detectedSourceLanguage": "de"}
    ]


def test_texts_are_html_unless_the_request_says_otherwise(client: TestClient) -> None:
    tags = "<br>" * 6000 + "Hallo"  # more characters than a text may have, of which few are seen
    [found] = as_json(client, {**FIELDS, "q": tags}).json()["data"]["translations"]
    assert found["translatedText"] == tags
    plain = as_json(client, {**FIELDS, "q": tags, "format": "text"})
    assert "text must have at most" in refused(plain, 413, "INVALID_ARGUMENT")


@pytest.mark.parametrize(("asked", "told"), [("nmt", "nmt"), ("base", "base"), ("", "")])
def test_googles_own_models_are_whichever_there_is(
    client: TestClient, asked: str, told: str
) -> None:
    [found] = as_json(client, {**FIELDS, "model": asked}).json()["data"]["translations"]
    assert found["model"] == told


def test_a_model_may_be_named(client: TestClient) -> None:
    [found] = as_json(client, {**FIELDS, "model": "echo-de-en"}).json()["data"]["translations"]
    assert found == {"translatedText": "Hallo", "model": "echo-de-en"}


def test_nulls_are_as_if_left_out(client: TestClient) -> None:
    fields = {"q": [GERMAN], "target": "en", "cid": [], "format": None, "source": None}
    response = as_json(client, {**fields, "model": None})
    assert response.status_code == 200, response.text
    assert response.json()["data"]["translations"][0]["detectedSourceLanguage"] == "de"


@pytest.mark.parametrize(
    ("fields", "code", "status", "message"),
    [
        ({"q": None}, 400, "INVALID_ARGUMENT", "q must be"),
        ({"q": []}, 400, "INVALID_ARGUMENT", "q must have at least one item"),
        ({"q": ["a", 7]}, 400, "INVALID_ARGUMENT", "q[1] must be a valid string, got 7"),
        ({"q": ["a", "\0"]}, 400, "INVALID_ARGUMENT", "q[1]: "),
        ({"q": "x" * 70_000}, 413, "INVALID_ARGUMENT", "at most 65536 bytes"),
        ({"q": ["a"] * 2000}, 413, "INVALID_ARGUMENT", "texts"),
        ({"target": None}, 400, "INVALID_ARGUMENT", "missing target parameter"),
        ({"target": "xx"}, 400, "INVALID_ARGUMENT", "target must be one of ['en', 'zh-Hans']"),
        ({"source": "xx"}, 400, "INVALID_ARGUMENT", "source must be one of ['de']"),
        ({"format": "pdf"}, 400, "INVALID_ARGUMENT", "format must be 'html' or 'text'"),
        ({"model": "best"}, 404, "NOT_FOUND", "model must be one of"),
        ({"cid": ["mine"]}, 400, "INVALID_ARGUMENT", "'cid' is not supported"),
        ({"q": POISON}, 500, "INTERNAL", "non-finite"),
    ],
)
def test_refusals(
    client: TestClient, fields: dict[str, Any], code: int, status: str, message: str
) -> None:
    assert message in refused(as_json(client, {**FIELDS, **fields}), code, status)


@pytest.mark.parametrize("ask", ALL)
def test_one_detection_for_each_text(client: TestClient, ask: Any) -> None:
    response = ask(client, {"q": [GERMAN, "123"]}, f"{PATH}/detect")
    [[german], [number]] = response.json()["data"]["detections"]
    assert (german["language"], german["isReliable"]) == ("de", True)
    assert 0.5 < german["confidence"] <= 1
    assert number == {"language": "und", "confidence": 0.0, "isReliable": False}


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({}, 400, "missing q parameter"),
        ({"q": 5}, 400, "q must be"),
        ({"q": ["a", "x" * 30_000]}, 413, "q[1]: text must have at most"),
    ],
)
def test_what_cannot_be_detected(
    client: TestClient, fields: dict[str, Any], code: int, message: str
) -> None:
    response = as_json(client, fields, f"{PATH}/detect")
    assert message in refused(response, code, "INVALID_ARGUMENT")


@pytest.mark.parametrize("ask", ALL)
def test_languages_have_names_where_a_target_is_named(client: TestClient, ask: Any) -> None:
    path = f"{PATH}/languages"
    assert ask(client, {"target": "de"}, path).json()["data"]["languages"] == [
        {"language": "de", "name": "German"},
        {"language": "en", "name": "English"},
        {"language": "zh-Hans", "name": "zh-Hans"},
    ]
    assert ask(client, {}, path).json()["data"]["languages"][0] == {"language": "de"}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/detect", f"{PATH}/languages"])
@pytest.mark.parametrize("ask", ALL)
def test_the_key_may_stand_in_the_query_or_in_googles_header(path: str, ask: Any) -> None:
    with served(settings=Settings(api_keys=SecretStr(KEY))) as (client, _):
        keyless = ask(client, FIELDS, path)
        assert "API key is needed" in refused(keyless, 401, "UNAUTHENTICATED")
        if ask is as_query:
            assert client.get(path, params={**FIELDS, "key": KEY}).status_code == 200
            wrong = client.get(path, params={**FIELDS, "key": "another-key"})
        else:
            assert ask(client, FIELDS, f"{path}?key={KEY}").status_code == 200
            wrong = ask(client, FIELDS, f"{path}?key=another-key")
        assert "not known" in refused(wrong, 401, "UNAUTHENTICATED")
        for name, value in (("X-Goog-Api-Key", KEY), ("Authorization", f"Bearer {KEY}")):
            response = client.post(path, json=FIELDS, headers={name: value})
            assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "body", [{}, {"q": "Welt"}, {"q": None, "source": None}, {"target": "de", "format": "text"}]
)
def test_what_a_json_body_lacks_stands_in_the_query(
    client: TestClient, body: dict[str, Any]
) -> None:
    query = {"q": ["Hallo", "Welt"], "target": "en", "source": "de", "model": "echo-de-en"}
    wanted = {**query, **{name: value for name, value in body.items() if value is not None}}
    found = client.post(PATH, params=query, json=body)
    assert found.status_code == 200, found.text
    assert found.json() == as_json(client, wanted).json()
    for path in ("/detect", "/languages"):
        answer = client.post(PATH + path, params=query, json=body).json()
        assert answer == as_json(client, wanted, PATH + path).json()


@pytest.mark.parametrize("path", ["", "/detect", "/languages"])
def test_a_json_body_may_be_empty_where_the_query_has_all(client: TestClient, path: str) -> None:
    empty = client.post(
        PATH + path, params=FIELDS, headers={"Content-Type": "application/json"}, content=b""
    )
    assert empty.status_code == 200, empty.text
    assert empty.json() == as_query(client, FIELDS, PATH + path).json()


def test_a_query_does_not_hide_what_is_wrong(client: TestClient) -> None:
    wrong = client.post(PATH, params=FIELDS, json={"q": 5})
    assert "q must be" in refused(wrong, 400, "INVALID_ARGUMENT")
    broken = client.post(
        PATH, params=FIELDS, headers={"Content-Type": "application/json"}, content=b"{"
    )
    assert "valid JSON" in refused(broken, 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [("DELETE", PATH, 405), ("GET", "/language/translate/v3", 404)],
)
def test_no_such_route(client: TestClient, method: str, path: str, code: int) -> None:
    status = {405: "UNIMPLEMENTED", 404: "NOT_FOUND"}[code]
    refused(client.request(method, path), code, status)
