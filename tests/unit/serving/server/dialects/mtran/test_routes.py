"""The wire formats of MTranServer and of the plug-ins that it serves, with models that echo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.api.dialect import API_VERSION
from serving.server.http.settings import Settings
from tests.unit.serving.echo import EchoTranslator, served

GERMAN = "Das ist ein ganz einfacher Satz."
ENGLISH = "This is a very simple sentence, I think."
KEY = "one-of-the-keys"
PAIR = {"from": "de", "to": "en"}
GOOD: dict[str, dict[str, Any]] = {
    "/translate": {**PAIR, "text": "Hallo"},
    "/mtran/translate": {**PAIR, "text": "Hallo"},
    "/translate/batch": {**PAIR, "texts": ["Hallo", ""]},
    "/imme": {"source_lang": "de", "target_lang": "en", "text_list": ["Hallo", ""]},
    "/kiss": {**PAIR, "text": "Hallo"},
    "/hcfy": {"text": "Hallo", "destination": ["英语"], "source": "德语"},
    "/detect": {"text": GERMAN},
    "/mtran/detect": {"text": GERMAN},
}
"""A body of each route that reads one."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = [EchoTranslator(), EchoTranslator("echo-en-de", "en", "de")]
    with served(*translators, settings=Settings(max_body_bytes=65536)) as (client, _):
        yield client


def answer(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/translate", {"result": "Hallo"}),
        ("/mtran/translate", {"result": "Hallo"}),
        ("/translate/batch", {"results": ["Hallo", ""]}),
        (
            "/imme",
            {
                "translations": [
                    {"detected_source_lang": "de", "text": "Hallo"},
                    {"detected_source_lang": "de", "text": ""},
                ]
            },
        ),
        ("/kiss", {"text": "Hallo", "src": "de"}),
        ("/hcfy", {"text": "Hallo", "from": "德语", "to": "英语", "result": ["Hallo"]}),
        ("/detect", {"language": "de"}),
        ("/mtran/detect", {"language": "de"}),
    ],
)
def test_what_is_answered(client: TestClient, path: str, wanted: dict[str, Any]) -> None:
    assert answer(client, path, GOOD[path]) == wanted


@pytest.mark.parametrize("path", ["/translate", "/translate/batch"])
def test_html_keeps_its_tags(client: TestClient, path: str) -> None:
    tags = "<br>" * 6000 + "Hallo"  # more characters than a text may have, of which few are seen
    fields = {**PAIR, "text": tags} if path == "/translate" else {**PAIR, "texts": [tags]}
    [found] = answer(client, path, {**fields, "html": True}).values()
    assert found in (tags, [tags])
    assert client.post(path, json={**fields, "html": False}).status_code == 413


def test_kiss_answers_a_list_with_a_list(client: TestClient) -> None:
    fields = {"from": "auto", "to": "en-US", "texts": [GERMAN, "Hallo"]}
    found = answer(client, "/kiss", fields)["translations"]
    assert [each["text"] for each in found] == [GERMAN, "Hallo"]
    assert found[0]["src"] == "de"


def test_imme_reports_the_language_that_it_has_detected(client: TestClient) -> None:
    fields = {"source_lang": "auto", "target_lang": "en", "text_list": [GERMAN]}
    assert answer(client, "/imme", fields)["translations"] == [
        {"detected_source_lang": "de", "text": GERMAN}
    ]


def test_hcfy_takes_the_second_language_where_the_text_is_in_the_first(client: TestClient) -> None:
    fields = {"name": "mine", "destination": ["英语", "德语"]}
    german = answer(client, "/hcfy", {**fields, "text": f"{GERMAN}\n\n{GERMAN}"})
    assert (german["from"], german["to"]) == ("德语", "英语")
    assert german["result"] == [GERMAN, "", GERMAN]
    english = answer(client, "/hcfy", {**fields, "text": ENGLISH})
    assert (english["from"], english["to"], english["result"]) == ("英语", "德语", [ENGLISH])
    same = answer(client, "/hcfy", {"text": ENGLISH, "destination": ["en"]})
    assert same["result"] == [ENGLISH]


def test_hcfy_takes_a_text_of_many_lines(client: TestClient) -> None:
    lines = [GERMAN, ""] * 100
    fields = {"text": "\n".join(lines), "destination": ["英语"]}
    assert answer(client, "/hcfy", fields)["result"] == lines


def test_a_text_without_letters_is_english(client: TestClient) -> None:
    assert answer(client, "/detect", {"text": "123"}) == {"language": "en"}
    fields = {"text": "123", "destination": ["英语", "德语"]}
    assert answer(client, "/hcfy", fields)["result"] == ["123"]


def test_languages_and_version(client: TestClient) -> None:
    assert client.get("/mtran/languages").json() == {"languages": ["de", "en"]}
    assert client.get("/version").json() == {"version": API_VERSION}


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("/translate", {"to": "xx"}, 400, "to: xx is not supported"),
        ("/translate", {"from": "xx"}, 400, "from: xx is not supported"),
        ("/translate", {"text": 5}, 400, "text must be a valid string, got 5"),
        ("/translate", {"html": "maybe"}, 400, "html must be"),
        ("/mtran/translate", {"from": None}, 400, "missing from parameter"),
        ("/translate", {"text": "x" * 30_000}, 413, "text must have at most"),
        ("/translate/batch", {"texts": []}, 400, "texts must have at least one item"),
        ("/translate/batch", {"texts": ["a", 5]}, 400, "texts[1] must be a valid string"),
        ("/translate/batch", {"texts": ["a", "\0"]}, 400, "texts[1]: "),
        ("/translate/batch", {"to": "xx"}, 400, "to: xx is not supported"),
        ("/imme", {"target_lang": "xx"}, 400, "target_lang: xx is not supported"),
        ("/imme", {"text_list": "Hallo"}, 400, "text_list must be"),
        ("/imme", {"text_list": ["a", "\0"]}, 400, "text_list[1]: "),
        ("/kiss", {"text": None}, 400, "missing text parameter"),
        ("/kiss", {"texts": []}, 400, "texts must have at least one item"),
        ("/kiss", {"from": "xx"}, 400, "from: xx is not supported"),
        ("/hcfy", {"destination": []}, 400, "destination must have at least one item"),
        ("/hcfy", {"destination": ["法语"]}, 400, "destination: fr is not supported"),
        ("/hcfy", {"source": "法语"}, 400, "source: fr is not supported"),
        ("/hcfy", {"text": "x" * 30_000}, 413, "text must have at most"),
        ("/mtran/detect", {"text": None}, 400, "missing text parameter"),
        ("/detect", {"text": "x" * 30_000}, 413, "text must have at most"),
    ],
)
def test_refusals(
    client: TestClient, path: str, fields: dict[str, Any], status: int, message: str
) -> None:
    response = client.post(path, json={**GOOD[path], **fields})
    assert response.status_code == status, response.text
    assert set(response.json()) - {"hint"} == {"error", "code"}
    assert message in response.json()["error"]


@pytest.mark.parametrize("path", [*GOOD, "/mtran/languages"])
def test_the_key_may_stand_in_the_query(path: str) -> None:
    def ask(client: TestClient, query: str = "", **headers: str) -> int:
        if path in GOOD:
            return client.post(path + query, json=GOOD[path], headers=headers).status_code
        return client.get(path + query, headers=headers).status_code

    with served(settings=Settings(api_keys=SecretStr(KEY))) as (client, _):
        assert ask(client, f"?token={KEY}") == ask(client, f"?api_token={KEY}") == 200
        assert ask(client, **{"X-API-Token": KEY}) == 200
        assert ask(client, Authorization=f"Bearer {KEY}") == 200
        assert ask(client) == ask(client, "?token=another-key") == 401


def test_libretranslates_detection_stays_what_it_was(client: TestClient) -> None:
    assert answer(client, "/detect", {"q": GERMAN})[0]["language"] == "de"
    assert answer(client, "/translate", {"q": "a", "source": "de", "target": "en"})["model"]
