"""LibreTranslate's `/suggest` over a store in a file, and the export of what was suggested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.unit.serving.echo import EchoTranslator, served

GIVEN = {"q": "Das <Haus>\n& Hof", "s": 'The "house"', "source": "de", "target": "EN"}
KEYS = ["the-first-key", "the-second-key"]
ADMIN = "the-key-of-the-admin"
PAIR = {"source": "de", "target": "en"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    file = tmp_path_factory.mktemp("store") / "store.db"
    settings = Settings(
        store=SecretStr(f"sqlite:///{file}"),
        api_keys=SecretStr(" ".join(KEYS)),
        admin_key=SecretStr(ADMIN),
        max_suggestions=2,
        max_text_chars=100,
    )
    with served(EchoTranslator(), settings=settings) as (client, _):
        yield client


def suggest(client: TestClient, key: str, **fields: Any) -> Any:
    return client.post("/suggest", json={**GIVEN, "api_key": key, **fields})


def exported(client: TestClient, key: str, path: str = "/suggestions") -> list[list[str]]:
    answer = client.get(path, params=PAIR, headers={"X-API-Key": key})
    assert answer.headers["content-type"] == "application/x-tmx+xml"
    tree = etree.fromstring(answer.content)
    return [[seg.text or "" for seg in unit.iter("seg")] for unit in tree.iter("tu")]


def test_suggestions_are_kept_for_their_key_and_exported_as_tmx(client: TestClient) -> None:
    assert client.get("/frontend/settings").json()["suggestions"] is True
    for key, fields in ((KEYS[0], {}), (KEYS[0], {}), (KEYS[1], {"q": "Tor", "s": "gate"})):
        answer = suggest(client, key, **fields)
        assert (answer.status_code, answer.json()) == (200, {"success": True})
    form = client.post("/suggest", data={**GIVEN, "q": "Hof", "s": "yard", "api_key": KEYS[0]})
    assert form.json() == {"success": True}
    mine = [[GIVEN["q"], GIVEN["s"]], ["Hof", "yard"]]
    assert exported(client, KEYS[0]) == mine
    assert exported(client, KEYS[1]) == [["Tor", "gate"]]
    everybody = exported(client, ADMIN, "/admin/suggestions")
    assert sorted(everybody) == sorted([*mine, ["Tor", "gate"]])
    full = suggest(client, KEYS[0], q="one more")
    assert (full.status_code, full.json()["code"]) == (429, "quota_exceeded")
    assert client.delete("/suggestions", headers={"X-API-Key": KEYS[0]}).status_code == 204
    assert exported(client, KEYS[0]) == []
    assert exported(client, KEYS[1]) == [["Tor", "gate"]]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"q": " "}, "q must not be blank"),
        ({"s": "\x01"}, "s must be text without control characters, got U+0001"),
        ({"q": "a" * 101}, "q must have at most 100 characters (MACARON_MAX_TEXT_CHARS)"),
        ({"source": "auto", "q": "This is a very simple sentence."},
         "source must be one of de, got 'en'"),
        ({"source": "auto", "target": "tlh"}, "tlh is not supported"),
        ({"target": "tlh"}, "target must be one of en, got 'tlh'"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(
    client: TestClient, fields: dict[str, str], told: str
) -> None:
    answer = suggest(client, KEYS[0], **fields)
    assert answer.status_code in (400, 413)
    assert told in answer.json()["error"]


def test_nothing_is_taken_without_a_key_or_without_a_store(client: TestClient) -> None:
    assert suggest(client, "a-wrong-key").status_code == 403
    assert client.get("/suggestions", params=PAIR).status_code == 401
    answer = client.get("/admin/suggestions", params=PAIR, headers={"X-API-Key": KEYS[0]})
    assert answer.status_code == 401
    with served() as (bare, _):
        answer = bare.post("/suggest", json=GIVEN)
        assert answer.status_code == 501
        assert "suggestions are not stored on this server" in answer.json()["error"]
        assert bare.get("/frontend/settings").json()["suggestions"] is False


def test_suggestions_outlive_the_server(tmp_path: Path) -> None:
    settings = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    with served(settings=settings) as (client, _):
        client.post("/suggest", json=GIVEN)
    with served(settings=settings) as (client, _):
        assert exported(client, "") == [[GIVEN["q"], GIVEN["s"]]]


def test_the_language_of_a_text_may_be_detected(tmp_path: Path) -> None:
    texts = {"de": "Das ist ein ganz einfacher Satz.", "fr": "C'est une phrase toute simple."}
    models = [EchoTranslator(), EchoTranslator("echo-fr-de", "fr", "de")]
    settings = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    with served(*models, settings=settings) as (client, _):
        for text in texts.values():
            body = {"q": text, "s": "This is a simple sentence.", "target": "en"}
            told = client.post("/translate", json={**body, "source": "auto"}).json()
            assert texts[told["detectedLanguage"]["language"]] == text
            for source in ("auto", "AUTO"):
                answer = client.post("/suggest", json={**body, "source": source})
                assert (answer.status_code, answer.json()) == (200, {"success": True})
        for source, text in texts.items():
            answer = client.get("/suggestions", params={"source": source, "target": "en"})
            units = etree.fromstring(answer.content).iter("tu")
            assert [next(unit.iter("seg")).text for unit in units] == [text]
        refused = client.get("/suggestions", params={"source": "auto", "target": "en"})
        assert refused.status_code == 400
        assert "source must be the language of the text, got auto" in refused.json()["error"]
