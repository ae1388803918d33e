"""DeepL's wire format, with a model that echoes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from serving.translation.texts import TextProcessor
from serving.translation.ticket import Request
from tests.unit.serving.echo import POISON, EchoTranslator, served

FORM = "application/x-www-form-urlencoded"
PAIR = {"source_lang": "DE", "target_lang": "EN-US"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [
        EchoTranslator(),
        EchoTranslator("echo-en-pt", "en", "pt"),
        EchoTranslator("echo-en-zh", "en", "zh-Hans"),
    ]
    with served(*translators, settings=Settings(max_body_bytes=4096)) as (client, _):
        yield client


def translate(client: TestClient, text: object, **fields: Any) -> Any:
    response = client.post("/v2/translate", json={"text": text, **PAIR, **fields})
    assert response.status_code == 200, response.text
    return response.json()["translations"]


def refused(client: TestClient, status: int, **fields: Any) -> str:
    response = client.post("/v2/translate", json={"text": ["Hallo"], **PAIR, **fields})
    assert response.status_code == status, response.text
    assert set(response.json()) == {"message", "code"}
    message: str = response.json()["message"]
    return message


def test_texts_in_order(client: TestClient) -> None:
    assert translate(client, ["Hallo", "", "Welt 👋"]) == [
        {"detected_source_language": "DE", "text": "Hallo", "billed_characters": 5},
        {"detected_source_language": "DE", "text": "", "billed_characters": 0},
        {"detected_source_language": "DE", "text": "Welt 👋", "billed_characters": 6},
    ]
    assert [t["text"] for t in translate(client, "Hallo")] == ["Hallo"]


@pytest.mark.parametrize("body", ["text=Eins&text=Zwei+%C3%BC", "text=Eins&text=Zwei+ü"])
def test_forms_repeat_their_text(client: TestClient, body: str) -> None:
    data = f"{body}&target_lang=en&source_lang=de&preserve_formatting=1&split_sentences=0"
    headers = {"Content-Type": FORM}
    response = client.post("/v2/translate", content=data.encode(), headers=headers)
    assert response.status_code == 200, response.text
    assert [t["text"] for t in response.json()["translations"]] == ["Eins", "Zwei ü"]


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("DE", "EN", "en"),
        ("de", "en-gb", "en"),
        ("De", "EN-US", "en"),
        ("EN", "PT-BR", "pt"),
        ("EN", "PT-PT", "pt"),
        ("EN-US", "PT", "pt"),
        ("EN", "ZH-HANS", "zh-Hans"),
    ],
)
def test_language_codes(client: TestClient, source: str, target: str, text: str) -> None:
    (found,) = translate(client, [text], source_lang=source, target_lang=target)
    assert found["text"] == text
    assert found["detected_source_language"] == source[:2].upper()


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"target_lang": "XX"}, 400, "Value for 'target_lang' not supported: must be one of ['EN'"),
        ({"source_lang": "XX"}, 400, "Value for 'source_lang' not supported"),
        ({"target_lang": None}, 400, "target_lang must be a valid string, got null"),
        ({"text": []}, 400, "text must have at least one item"),
        ({"text": ["a", 7]}, 400, "text[1] must be a valid string, got 7"),
        (
            {"text": ["a", "ja " * 90], "split_sentences": "0"},
            413,
            "text[1]: text must have at most 255 pieces",
        ),
        ({"text": ["a", "\0"]}, 400, "U+0000"),
        ({"text": ["x" * 5000]}, 413, "at most 4096 bytes"),
        ({"split_sentences": "maybe"}, 400, "split_sentences must be '0', '1' or 'nonewlines'"),
        ({"formality": "more"}, 400, "'formality' is not supported for given 'target_lang'"),
        ({"formality": "rude"}, 400, "formality must be"),
        ({"tag_handling": "markdown"}, 400, "tag_handling must be 'xml' or 'html'"),
        ({"model_type": "best"}, 400, "model_type must be"),
        ({"glossary_id": "a-b"}, 501, "glossaries are not stored on this server"),
        ({"glossary_ids": ["a-b"]}, 501, "glossaries are not stored on this server"),
        ({"style_id": "a-b"}, 400, "'style_id' is not supported"),
        ({"custom_instructions": ["Be brief"]}, 400, "'custom_instructions' is not supported"),
        ({"text": [POISON]}, 500, "non-finite"),
    ],
)
def test_refusals(client: TestClient, fields: dict[str, Any], status: int, message: str) -> None:
    assert message in refused(client, status, **fields)
    assert translate(client, ["weiter"])[0]["text"] == "weiter"


def test_what_is_ignored(client: TestClient) -> None:
    fields = {
        "context": "Among friends.",
        "formality": "prefer_less",
        "show_billed_characters": True,
        "preserve_formatting": "1",
        "outline_detection": False,
        "tag_handling_version": "v2",
        "glossary_id": None,
        "not_yet_invented": {"a": 1},
    }
    assert translate(client, ["Hallo"], **fields)[0]["text"] == "Hallo"


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("latency_optimized", "latency_optimized"),
        ("quality_optimized", "quality_optimized"),
        ("prefer_quality_optimized", "quality_optimized"),
    ],
)
def test_model_type_is_named_where_it_was_asked_for(
    client: TestClient, asked: str, used: str
) -> None:
    assert translate(client, ["a"], model_type=asked)[0]["model_type_used"] == used


def test_source_language_is_detected_where_it_is_left_out(client: TestClient) -> None:
    for left_out in ({}, {"source_lang": None}, {"source_lang": ""}):
        body = {"text": ["Das ist ein ganz einfacher Satz."], "target_lang": "EN-GB", **left_out}
        (found,) = client.post("/v2/translate", json=body).json()["translations"]
        assert found["detected_source_language"] == "DE"


@pytest.mark.parametrize("kind", ["html", "xml"])
@pytest.mark.parametrize("ignored", [["keep", "x"], "x,keep", ["x, KEEP"]])
def test_tags_stay_and_so_does_what_is_ignored(
    client: TestClient, kind: str, ignored: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    prepare = TextProcessor.prepare

    def note(self: TextProcessor, request: Request) -> Any:
        seen.append(request.text)
        return prepare(self, request)

    monkeypatch.setattr(TextProcessor, "prepare", note)
    text = "<par>Eine Seite <keep>Einstellungen</keep> &amp; <b>mehr</b></par>"
    (found,) = translate(client, [text], tag_handling=kind, ignore_tags=ignored)
    assert found["text"] == text
    assert found["billed_characters"] == len("Eine Seite Einstellungen &amp; mehr")
    assert not any("Einstellungen" in sentence or "<" in sentence for sentence in seen)
    assert any("Seite" in sentence for sentence in seen)


def test_tags_are_text_without_tag_handling(client: TestClient) -> None:
    assert translate(client, ["a < b & <c>"])[0]["text"] == "a < b & <c>"


def test_line_breaks_are_spaces_where_the_request_says_so(client: TestClient) -> None:
    (joined,) = translate(client, ["eins\r\nzwei"], split_sentences="nonewlines")
    assert joined["text"] == "eins zwei"
    assert joined["billed_characters"] == 10


def test_source_languages(client: TestClient) -> None:
    wanted = [{"language": "DE", "name": "German"}, {"language": "EN", "name": "English"}]
    assert client.get("/v2/languages").json() == wanted
    assert client.get("/v2/languages?type=source").json() == wanted


def test_target_languages_have_regions_and_no_formality(client: TestClient) -> None:
    found = client.get("/v2/languages?type=target").json()
    assert [language["language"] for language in found] == [
        *("EN-GB", "EN-US", "PT-BR", "PT-PT", "ZH-HANS")
    ]
    assert found[0]["name"] == "English (British)"
    assert {language["supports_formality"] for language in found} == {False}


@pytest.mark.parametrize(
    ("method", "body", "content_type"),
    [
        ("GET", "type=target", FORM),
        ("POST", "type=target", FORM),
        ("GET", json.dumps({"type": "target"}), "application/json"),
    ],
)
def test_type_may_stand_in_the_body(
    client: TestClient, method: str, body: str, content_type: str
) -> None:
    headers = {"Content-Type": content_type}
    found = client.request(method, "/v2/languages", content=body, headers=headers)
    assert found.json() == client.get("/v2/languages?type=target").json()


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/octet-stream", "multipart/form-data", "x", "text/html; charset=x"],
)
@pytest.mark.parametrize("body", [b"", b"type=source"])
def test_a_get_with_another_media_type_is_answered_by_its_query(
    client: TestClient, content_type: str, body: bytes
) -> None:
    headers = {"Content-Type": content_type}
    path = "/v2/languages?type=target"
    if content_type.startswith("multipart") and body:
        return  # a form, which it says it is, is read
    found = client.request("GET", path, content=body, headers=headers)
    assert found.json() == client.get(path).json()
    refused = client.post(path, content=b"type=source", headers=headers)
    assert refused.status_code in (400, 415)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": FORM}, {"Content-Encoding": "gzip"}])
def test_a_get_without_a_body_is_answered_by_its_query(
    client: TestClient, headers: dict[str, str]
) -> None:
    found = client.get("/v2/usage?auth_key=", headers=headers)
    assert found.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        "text[0]=Eins&text[1]=Zwei",
        "text[]=Eins&text[]=Zwei",
        "text%5B1%5D=Zwei&text%5B0%5D=Eins",
        "text=Eins&text[]=Zwei",
    ],
)
def test_texts_of_a_form_may_be_numbered(client: TestClient, body: str) -> None:
    data = f"{body}&target_lang=en&source_lang=de"
    response = client.post("/v2/translate", content=data, headers={"Content-Type": FORM})
    assert [t["text"] for t in response.json()["translations"]] == ["Eins", "Zwei"]


def test_type_is_source_or_target(client: TestClient) -> None:
    response = client.get("/v2/languages?type=both")
    assert response.status_code == 400
    assert response.json()["message"] == "type must be 'source' or 'target', got 'both'"


def test_usage_counts_what_was_translated_until_the_quota_is_used_up() -> None:
    with served(settings=Settings(character_limit=10)) as (client, _):
        assert client.get("/v2/usage").json() == {"character_count": 0, "character_limit": 10}
        translate(client, ["vier", "fünf"])
        refused(client, 400, target_lang="XX")
        assert "10 characters (MACARON_CHARACTER_LIMIT)" in refused(client, 456, text=["neu"])
        assert client.post("/v2/usage").json()["character_count"] == 8
        refused(client, 500, text=[POISON])
        translate(client, ["ab"])
        assert client.get("/v2/usage").json()["character_count"] == 10


def test_each_key_has_its_own_usage_and_a_bad_one_is_forbidden() -> None:
    settings = Settings(api_keys=SecretStr("first-key second-key"), character_limit=5)
    with served(settings=settings) as (client, _):
        first, second = (
            {"Authorization": f"DeepL-Auth-Key {name}-key"} for name in ("first", "second")
        )
        body = {"text": ["Hallo"], **PAIR}
        assert client.post("/v2/translate", json=body, headers=first).status_code == 200
        assert client.post("/v2/translate", json=body, headers=first).status_code == 456
        assert client.get("/v2/usage", headers=first).json()["character_count"] == 5
        assert client.get("/v2/usage", headers=second).json()["character_count"] == 0
        in_body = client.post("/v2/translate", data={**body, "auth_key": "second-key"})
        assert in_body.status_code == 200
        assert client.post("/v2/usage", headers=second).json()["character_count"] == 5
        for path in ("/v2/translate", "/v2/languages", "/v2/usage"):
            for headers in ({}, {"Authorization": "DeepL-Auth-Key wrong-key"}):
                response = client.post(path, json=body, headers=headers)
                assert response.status_code == 403
                assert set(response.json()) == {"message", "code"}
        assert client.get("/v2/usage").status_code == 403


def test_there_are_no_glossaries(client: TestClient) -> None:
    assert client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
    for path in ("/v2/glossaries", "/v3/glossaries"):
        assert client.get(path).json() == {"glossaries": []}
        for method, below in (("POST", ""), ("GET", "/a"), ("DELETE", "/a")):
            refused = client.request(method, path + below, json={"name": "mine"})
            assert refused.status_code == 501
            assert "glossaries are not stored on this server" in refused.json()["message"]


def test_a_context_that_counts_for_nothing_is_named_in_a_warning(client: TestClient) -> None:
    body = {"text": ["Hallo"], **PAIR}
    with_context = client.post("/v2/translate", json={**body, "context": "Among friends."})
    assert with_context.json()["warnings"] == [
        "'context' is not used: no model of this server was trained with it"
    ]
    for without in (body, {**body, "context": ""}, {**body, "context": None}):
        assert "warnings" not in client.post("/v2/translate", json=without).json()


def test_languages_of_a_resource(client: TestClient) -> None:
    found = client.get("/v3/languages?resource=translate_text").json()
    assert [
        (each["lang"], each["usable_as_source"], each["usable_as_target"]) for each in found
    ] == [
        ("de", True, False),
        ("en", True, False),
        ("en-GB", False, True),
        ("en-US", False, True),
        ("pt-BR", False, True),
        ("pt-PT", False, True),
        ("zh-Hans", False, True),
    ]
    assert found[0] == {
        "lang": "de",
        "name": "German",
        "usable_as_source": True,
        "usable_as_target": False,
        "status": "stable",
        "features": {
            "tag_handling": {"status": "stable"},
            "auto_detection": {"status": "stable"},
        },
    }
    assert set(found[2]["features"]) == {"tag_handling"}
    for other in ("translate_document", "voice", "write", "glossary", "style_rules"):
        assert client.get(f"/v3/languages?resource={other}").json() == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "Invalid request: missing resource parameter"),
        ("?resource=paint", "resource must be 'translate_text', 'translate_document',"),
    ],
)
def test_a_resource_must_be_named(client: TestClient, query: str, message: str) -> None:
    response = client.get(f"/v3/languages{query}")
    assert response.status_code == 400
    assert message in response.json()["message"]


@pytest.mark.parametrize("path", ["/v2/write/rephrase", "/v2/write/correct"])
def test_texts_are_not_rewritten(client: TestClient, path: str) -> None:
    response = client.post(path, json={"text": ["Hallo"], "target_lang": "DE"})
    assert response.status_code == 400
    assert "not corrected or rewritten on this server" in response.json()["message"]


def test_there_are_no_style_rules(client: TestClient) -> None:
    assert client.get("/v3/style_rules?detailed=true").json() == {"style_rules": []}
    response = client.post("/v3/style_rules", json={"name": "mine", "language": "de"})
    assert response.status_code == 400
    assert "style rules are not supported on this server" in response.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/translate", 405),
        ("GET", "/v2/glossaries/a/b", 404),
        ("GET", "/v3/glossaries/a/b", 404),
        ("POST", "/v2/documents", 404),
    ],
)
def test_no_such_route(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert set(response.json()) == {"message", "code"}


def test_an_unforeseen_error_has_deepls_shape(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("serving.server.dialects.deepl.routes.translation", fail)
    assert refused(client, 500) == "the server failed; its log says why"


@pytest.mark.parametrize("where", ["query", "body", "head"])
def test_the_key_may_stand_in_the_query_too(where: str) -> None:
    key, text = "one-of-the-keys", {"text": ["Hallo"], "target_lang": "EN"}
    with served(settings=Settings(api_keys=SecretStr(key))) as (client, _):
        ask: dict[str, dict[str, Any]] = {
            "query": {"params": {"auth_key": key}, "json": text},
            "body": {"json": {**text, "auth_key": key}},
            "head": {"headers": {"Authorization": f"DeepL-Auth-Key {key}"}, "json": text},
        }
        assert client.post("/v2/translate", **ask[where]).status_code == 200
        assert client.post("/v2/translate", json=text).status_code == 403
        wrong = client.post("/v2/translate?auth_key=wrong-wrong", json=text)
        assert wrong.status_code == 403


@pytest.mark.parametrize("path", ["/v2/usage", "/v2/languages"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_may_stand_there_whatever_the_method(method: str, path: str) -> None:
    key, asked = "one-of-the-keys", {"type": "target"}
    with served(settings=Settings(api_keys=SecretStr(key))) as (client, _):
        found = client.request(method, path, params={**asked, "auth_key": key})
        head = client.get(path, params=asked, headers={"Authorization": f"DeepL-Auth-Key {key}"})
        assert (found.status_code, found.json()) == (200, head.json())
        for wrong in ({}, {"auth_key": ""}, {"auth_key": "wrong-wrong"}):
            refusal = client.request(method, path, params={**asked, **wrong})
            assert refusal.status_code == 403
            assert set(refusal.json()) == {"message", "code"}
