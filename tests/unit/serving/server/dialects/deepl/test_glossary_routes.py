"""DeepL's glossaries over HTTP, with a store in a file and a model that echoes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from serving.arrays import Floats
from serving.server.http.settings import Settings
from tests.unit.serving.echo import LONGEST_READ, EchoTranslator, send_in_parts, served
from tests.unit.serving.search.fake_stepper import FakeModel, Slots

PAIR = {"source_lang": "DE", "target_lang": "EN"}
NEW = {**PAIR, "name": "mine", "entries": "Haus\thome\nStrasse\troad", "entries_format": "tsv"}
KEYS = "the-first-key the-second-key"
HEADERS = [{"Authorization": f"DeepL-Auth-Key {key}"} for key in KEYS.split()]


def diagonal(_: FakeModel, source: tuple[int, ...], slots: Slots) -> Floats:
    """Attention to what is being said back."""
    return np.eye(len(source), dtype=np.float32)[min(len(slots), len(source)) - 1]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(FakeModel, "attention", diagonal)
    settings = Settings(
        store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"),
        api_keys=SecretStr(KEYS),
        max_glossaries=3,
    )
    echoes = EchoTranslator(), EchoTranslator("echo-en-pt", "en", "pt")
    with served(*echoes, settings=settings) as (client, _):
        client.headers.update(HEADERS[0])
        yield client


def made(client: TestClient, **fields: Any) -> Any:
    answer = client.post("/v2/glossaries", json={**NEW, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(client: TestClient, method: str, path: str, status: int, **rest: Any) -> str:
    answer = client.request(method, path, **rest)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"message", "code"}
    message: str = answer.json()["message"]
    return message


def test_a_glossary_of_one_pair_comes_and_goes(client: TestClient) -> None:
    found = made(client)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found.pop("creation_time"))
    path = f"/v2/glossaries/{found.pop('glossary_id')}"
    assert found == {
        "name": "mine",
        "ready": True,
        "source_lang": "de",
        "target_lang": "en",
        "entry_count": 2,
    }
    assert client.get(path).json()["entry_count"] == 2
    assert len(client.get("/v2/glossaries").json()["glossaries"]) == 1
    entries = client.get(f"{path}/entries", headers={"Accept": "text/tab-separated-values"})
    assert entries.text == NEW["entries"]
    assert entries.headers["content-type"].startswith("text/tab-separated-values")
    assert "Accept must be" in refused(
        client, "GET", f"{path}/entries", 415, headers={"Accept": "text/csv"}
    )
    assert client.delete(path).status_code == 204
    assert "no glossary has the id" in refused(client, "GET", path, 404)


def test_a_glossary_of_several_pairs_is_changed_piece_by_piece(client: TestClient) -> None:
    dictionary = {**PAIR, "entries": "Haus,home", "entries_format": "csv"}
    back = {"source_lang": "EN", "target_lang": "PT-BR", "entries": "a\tb", "entries_format": "tsv"}
    body = {"name": "both", "dictionaries": [dictionary]}
    path = "/v3/glossaries/" + client.post("/v3/glossaries", json=body).json()["glossary_id"]
    pairs = client.get("/v2/glossary-language-pairs").json()["supported_languages"]
    assert pairs == [
        {"source_lang": "de", "target_lang": "en"},
        {"source_lang": "en", "target_lang": "pt"},
    ]
    changes = {"name": "new", "dictionaries": [{**PAIR, **NEW, "entries": "Hof\tyard"}]}
    assert client.patch(path, json=changes).json()["dictionaries"][0]["entry_count"] == 2
    replaced = client.put(f"{path}/dictionaries", json={**dictionary, "entries": "Tor,goal"})
    assert replaced.json() == {"source_lang": "de", "target_lang": "en", "entry_count": 1}
    (entries,) = client.get(f"{path}/entries", params=PAIR).json()["dictionaries"]
    assert (entries["entries"], entries["entries_format"]) == ("Tor\tgoal", "tsv")
    assert client.get(f"/v2{path.removeprefix('/v3')}").status_code == 200
    assert client.put(f"{path}/dictionaries", json=back).status_code == 200
    assert "it has 2; ask for /v3" in refused(client, "GET", f"/v2{path[3:]}", 404)
    assert client.delete(f"{path}/dictionaries", params=PAIR).status_code == 204
    refused(client, "DELETE", f"{path}/dictionaries", 404, params=PAIR)
    assert client.get("/v3/glossaries").json()["glossaries"][0]["name"] == "new"


def test_dictionaries_may_be_the_fields_of_a_form(client: TestClient) -> None:
    form = {
        "name": "g",
        "dictionaries[0].source_lang": "DE",
        "dictionaries[0].target_lang": "EN",
        "dictionaries[0].entries": "Pumpe\timpeller",
        "dictionaries[0].entries_format": "tsv",
    }
    answer = client.post("/v3/glossaries", data=form)
    assert answer.status_code == 201, answer.text
    path = f"/v3/glossaries/{answer.json()['glossary_id']}"
    del form["name"]
    changed = client.patch(path, data=form | {"dictionaries[0].entries": "Rad\twheel"}).json()
    assert (changed["name"], changed["dictionaries"][0]["entry_count"]) == ("g", 2)
    (entries,) = client.get(f"{path}/entries", params=PAIR).json()["dictionaries"]
    assert entries["entries"] == "Pumpe\timpeller\nRad\twheel"
    del form["dictionaries[0].entries"]
    message = refused(client, "PATCH", path, 400, data=form)
    assert "dictionaries[0].entries is missing" in message


def test_terms_are_put_into_translations(client: TestClient) -> None:
    first, second = (made(client, entries=f"Haus\t{target}")["glossary_id"] for target in "xy")

    def ask(text: str, **fields: Any) -> str:
        answer = client.post("/v2/translate", json={"text": text, **PAIR, **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["translations"][0]["text"])

    assert ask("Das Haus. Ein Hof. HAUS!", glossary_id=first) == "Das x. Ein Hof. X!"
    assert ask("Das Haus", glossary_ids=[second, first]) == "Das y"
    assert ask("Das Haus", glossary_ids=f"{first},{second}") == "Das x"
    assert ask("Das Haus", target_lang="EN-GB", glossary_id=first) == "Das x"
    assert ask("<p>Das <b>Haus</b></p>", tag_handling="html", glossary_id=first) == (
        "<p>Das <b>x</b></p>"
    )
    assert ask("Das Haus") == "Das Haus"


def test_a_glossary_needs_its_languages_and_its_owner(client: TestClient) -> None:
    id = made(client)["glossary_id"]
    text = {"text": "Das Haus", "target_lang": "EN"}

    def message(status: int, **fields: Any) -> str:
        return refused(client, "POST", "/v2/translate", status, json={**text, **fields})

    assert "send the source language" in message(400, glossary_id=id)
    assert "must have a dictionary from" in message(
        400, glossary_id=id, source_lang="EN-US", target_lang="PT"
    )
    assert "at most 5" in message(400, glossary_ids=[id] * 6, source_lang="DE")
    both = {"glossary_ids": [id], "glossary_id": id}
    assert "cannot be used together" in message(400, **both, source_lang="DE")
    assert "no glossary has the id" in message(404, glossary_id="x", source_lang="DE")
    client.headers.update(HEADERS[1])
    assert "no glossary has the id" in message(404, glossary_id=id, source_lang="DE")
    assert client.get("/v2/glossaries").json() == {"glossaries": []}
    client.headers.pop("Authorization")
    refused(client, "GET", "/v2/glossaries", 403)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": ""}, 400, "name must be text"),
        ({"name": "a\nb"}, 400, "name must be text"),
        ({"name": "x" * 2000}, 413, "name must have at most 1024 characters"),
        ({"entries": ""}, 400, "at least one entry"),
        ({"entries": "Haus"}, 400, "line 1 with 0 tabs"),
        ({"entries": "a\tb\tc"}, 400, "line 1 with 2 tabs"),
        ({"entries": "a\t "}, 400, "got '' in entry 1"),
        ({"entries": "a\tb\nc\td\u2028e"}, 400, "got 'd\\u2028e' in entry 2"),
        ({"entries": "a\tb\na \tc"}, 400, "got 'a' again as entry 2"),
        ({"entries": "a\t" + "x" * 101}, 413, "at most 100 characters"),
        ({"entries": "a\0\tb"}, 400, "control characters"),
        ({"entries": 'a,"b', "entries_format": "csv"}, 400, "got line 1 that is not"),
        ({"entries": '"a"x,b', "entries_format": "csv"}, 400, "got line 1 that is not"),
        ({"entries": "a,b,c", "entries_format": "csv"}, 400, "line 1 with 3 columns"),
        ({"entries": '"a\nb",c', "entries_format": "csv"}, 400, "without tabs, line ends"),
        ({"entries": "a,b", "entries_format": "xml"}, 400, "entries_format must be 'tsv' or 'csv'"),
        ({"source_lang": "XX"}, 400, "must be of a language pair that a model translates"),
        ({"entries": "\n".join(f"a{n}\tb" for n in range(10_001))}, 413, "at most 10000 entries"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    client: TestClient, fields: dict[str, Any], status: int, message: str
) -> None:
    assert message in refused(client, "POST", "/v2/glossaries", status, json={**NEW, **fields})
    assert client.get("/v2/glossaries").json() == {"glossaries": []}


def test_lone_surrogates_are_refused(client: TestClient) -> None:
    body = b'{"name":"\\ud800","source_lang":"DE","target_lang":"EN","entries":"a\\tb",'
    body += b'"entries_format":"tsv"}'
    headers = {"Content-Type": "application/json"}
    refused(client, "POST", "/v2/glossaries", 400, content=body, headers=headers)


@pytest.mark.parametrize(
    ("media_type", "part"),
    [
        ("application/json", b"a,b\\n" * 20_000),
        (
            "application/x-www-form-urlencoded",
            b"entries_format=csv&entries=" + b"a,b%0A" * 20_000,
        ),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/glossaries"),
        ("POST", "/v3/glossaries"),
        ("PATCH", "/v3/glossaries/ID"),
        ("PUT", "/v3/glossaries/ID/dictionaries"),
    ],
)
def test_a_hundred_megabytes_are_refused_at_once(
    client: TestClient, method: str, path: str, media_type: str, part: bytes
) -> None:
    path = path.replace("ID", made(client)["glossary_id"])
    headers = {**HEADERS[0], "Content-Type": media_type}
    declared = {**headers, "Content-Length": "100000000"}
    for sent, most_read in ((declared, 0), (headers, LONGEST_READ)):
        answer = send_in_parts(client.app, method, path, sent, part, 100_000_000 // len(part))
        assert (answer.status, "at most 1048576 bytes" in answer.text) == (413, True)
        assert answer.parts_read * len(part) <= most_read
    assert client.get("/v2/glossaries").json()["glossaries"][0]["entry_count"] == 2


def test_a_key_keeps_so_many(client: TestClient) -> None:
    for _ in range(3):
        made(client)
    assert "at most 3 glossaries" in refused(client, "POST", "/v2/glossaries", 456, json=NEW)
    client.headers.update(HEADERS[1])
    made(client)


def test_a_store_that_goes_away_stops_what_needs_it_alone(client: TestClient) -> None:
    """Translation without it goes on, and it is used again when it is back."""
    id = made(client)["glossary_id"]
    text = {"text": "Das Haus", **PAIR}
    with_terms = {**text, "glossary_id": id}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "connect", gone)
        for method, path, body in (
            ("POST", "/v2/translate", with_terms),
            ("GET", "/v2/glossaries", None),
            ("POST", "/v2/glossaries", NEW),
            ("DELETE", f"/v3/glossaries/{id}", None),
        ):
            answer = client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        assert client.post("/v2/translate", json=text).status_code == 200
    (found,) = client.post("/v2/translate", json=with_terms).json()["translations"]
    assert found["text"] == "Das home"


def gone(*_: object) -> None:
    raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))
