"""Translation memories in the native dialect, with a store in a file and a model that echoes."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.documents.localisation.segments import written_tmx
from serving.server.dialects.native import memory_routes
from serving.server.http.settings import Settings
from serving.server.work.stored.memories import FileRead, add_file
from serving.store.database import Database
from serving.store.records.memory import MemoryLimits, StoredMemory
from serving.store.store import Store
from serving.text.memory.segments import Segment
from tests.unit.serving.echo import EchoTranslator, served

KEYS = "first-key-of-sixteen second-key-of-sixteen"
FIRST = {"Authorization": "Bearer first-key-of-sixteen"}
OTHER = {"Authorization": "Bearer second-key-of-sixteen"}
SEGMENTS = [
    {"source": "Seite 3 von 10.", "target": "Page 3 of 10."},
    {"source": "Hallo {name}!", "target": "Hello {name}!"},
    {"source": "Das kostet 1.234,50 €.", "target": "It costs €1,234.50."},
]
NEW: dict[str, Any] = {"name": "mine", "source": "de", "target": "en", "segments": SEGMENTS}
ASK = {"source": "de", "target": "en"}
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise("abcdefghij"))
    + '<!ENTITY file SYSTEM "file:///etc/passwd">]><tmx><header srclang="de"/><body><tu>'
    '<tuv xml:lang="de"><seg>&j;</seg></tuv><tuv xml:lang="en"><seg>&file;</seg></tuv></tu>'
    "</body></tmx>"
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(
        store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"),
        api_keys=SecretStr(KEYS),
        max_memory_bytes=100_000,
    )
    with served(settings=settings) as (client, _):
        client.headers.update(FIRST)
        yield client


def made(client: TestClient, **fields: Any) -> Any:
    answer = client.post("/memories", json={**NEW, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def translated(client: TestClient, q: Any, **fields: Any) -> Any:
    answer = client.post("/translate", json={**ASK, "q": q, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_memory_comes_grows_and_goes(client: TestClient) -> None:
    found = made(client)
    path = f"/memories/{found['id']}"
    assert (found["segment_count"], found["source"], found["target"]) == (3, "de", "en")
    more = {"segments": [{"source": "Ja", "target": "Yes"}]}
    assert client.post(f"{path}/segments", json=more).json()["segment_count"] == 4
    assert client.get(path).json()["segment_count"] == 4
    page = client.get(f"{path}/segments", params={"limit": 3}).json()
    assert [each["source"] for each in page["segments"]] == [s["source"] for s in SEGMENTS]
    rest = client.get(f"{path}/segments", params={"after": page["next"]}).json()
    assert [each["target"] for each in rest["segments"]] == ["Yes"]
    assert "next" not in rest
    assert client.get(f"{path}/segments", params={"after": 10**20}).status_code == 400
    held = client.get(f"{path}/segments", params={"text": "hello"}).json()
    assert [each["number"] for each in held["segments"]] == [1]
    assert [each["id"] for each in client.get("/memories").json()["memories"]] == [found["id"]]
    assert client.delete(path).status_code == 204
    assert client.get("/memories").json() == {"memories": []}


def test_a_memory_goes_out_as_tmx_and_comes_in_again(client: TestClient) -> None:
    found = made(client, segments=[*SEGMENTS, {"source": "a < b & c", "target": "„“ 🎉"}])
    tmx = client.get(f"/memories/{found['id']}/tmx").content
    other = made(client, segments=[])
    path = f"/memories/{other['id']}/tmx"
    read = client.post(path, files={"file": ("m.tmx", tmx)}).json()
    assert (read["added"], read["skipped"]) == (4, 0)
    assert client.get(path).content == tmx


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (BOMB, 400, "declares entities"),
        ("<html/>", 400, "must be TMX"),
        ("<tmx><body><tu>", 400, "well-formed"),
        ("<tmx>" + " " * 100_000 + "</tmx>", 413, "MACARON_MAX_MEMORY_BYTES"),
    ],
)
def test_a_file_that_is_not_whole_or_not_to_be_trusted_adds_nothing(
    client: TestClient, content: str, status: int, said: str
) -> None:
    path = f"/memories/{made(client)['id']}"
    answer = client.post(f"{path}/tmx", files={"file": ("m.tmx", content.encode())})
    assert answer.status_code == status
    assert said in answer.json()["error"]
    assert client.get(path).json()["segment_count"] == 3


def test_sentences_that_a_memory_has_are_not_decoded(client: TestClient) -> None:
    id = made(client)["id"]
    text = "Seite 7 von 12. Noch ein Satz. Hallo {user}!"
    answer = translated(client, text, memory_id=id)
    assert answer["translatedText"] == "Page 7 of 12. Noch ein Satz. Hello {user}!"
    assert answer["translations"][0]["origins"] == [
        {
            "sentence": "Seite 7 von 12.",
            "origin": "memory",
            "score": 100.0,
            "segment": "Seite 3 von 10.",
        },
        {"sentence": "Noch ein Satz.", "origin": "model"},
        {
            "sentence": "Hallo {user}!",
            "origin": "memory",
            "score": 100.0,
            "segment": "Hallo {name}!",
        },
    ]
    plain = translated(client, text)
    assert plain["translatedText"] == text
    assert "origins" not in plain["translations"][0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Das kostet 1.234,50 €.", "It costs €1,234.50."),
        ("Das kostet 9.876,10 €.", "It costs €9,876.10."),
        ("Das kostet {x} 1 €.", "Das kostet {x} 1 €."),
    ],
)
def test_figures_stand_as_the_memory_writes_them(
    client: TestClient, text: str, expected: str
) -> None:
    answer = translated(client, text, memory_id=made(client)["id"])
    assert answer["translatedText"] == expected


def test_what_is_alike_counts_from_the_threshold_on(client: TestClient) -> None:
    id = made(client)["id"]
    asked = "Seiten 3 von 10."
    found = translated(client, asked, memory_id=id)
    assert found["translatedText"] == "Page 3 of 10."
    [origin] = found["translations"][0]["origins"]
    assert 90 < origin["score"] < 95
    strict = translated(client, asked, memory_id=id, memory_threshold=95)
    assert strict["translatedText"] == asked


def test_markup_and_capitals_are_kept_around_what_a_memory_has(client: TestClient) -> None:
    id = made(client)["id"]
    html = "<p>Seite <b>4</b> von 5.</p><p>SEITE 3 VON 10.</p>"
    found = translated(client, html, memory_id=id, format="html")["translatedText"]
    assert found.endswith("<p>PAGE 3 OF 10.</p>")
    assert found.count("<b>") == found.count("</b>") == 1
    assert "Page" in found.replace("<b>", "").replace("</b>", "")


def test_a_stream_and_several_texts_are_answered_from_it(client: TestClient) -> None:
    id = made(client)["id"]
    asked = ["Seite 1 von 2.", "Anderes.", "Seite 2 von 2."]
    expected = ["Page 1 of 2.", "Anderes.", "Page 2 of 2."]
    assert translated(client, asked, memory_id=id)["translatedText"] == expected
    body = {**ASK, "q": asked, "memory_id": id, "stream": True}
    events = client.post("/translate", json=body).text
    assert '"translatedText":["Page 1 of 2.","Anderes.","Page 2 of 2."]' in events


@pytest.mark.parametrize(
    ("fields", "status", "parameter"),
    [
        ({"memory_id": "nowhere"}, 404, "no memory has the id"),
        ({"memory_threshold": 101}, 400, "memory_threshold"),
        ({"required": ["x"]}, 400, "required cannot be combined with memory_id"),
        ({"target_prefix": "x"}, 400, "target_prefix cannot be combined with memory_id"),
    ],
)
def test_what_does_not_go_with_a_memory_is_refused(
    client: TestClient, fields: dict[str, Any], status: int, parameter: str
) -> None:
    body = {**ASK, "q": "Hallo", "memory_id": made(client)["id"], **fields}
    answer = client.post("/translate", json=body)
    assert answer.status_code == status
    assert parameter in answer.json()["error"]


def test_another_keys_memory_is_as_if_it_were_not_there(client: TestClient) -> None:
    id = made(client)["id"]
    unknown = id.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    asks: list[Any] = [
        lambda id: client.get(f"/memories/{id}", headers=OTHER),
        lambda id: client.get(f"/memories/{id}/segments", headers=OTHER),
        lambda id: client.get(f"/memories/{id}/tmx", headers=OTHER),
        lambda id: client.delete(f"/memories/{id}", headers=OTHER),
        lambda id: client.post(
            f"/memories/{id}/segments", json={"segments": SEGMENTS}, headers=OTHER
        ),
        lambda id: client.post(
            f"/memories/{id}/tmx", files={"file": io.BytesIO(b"<tmx/>")}, headers=OTHER
        ),
        lambda id: client.post(
            "/translate", json={**ASK, "q": "a", "memory_id": id}, headers=OTHER
        ),
        lambda id: client.get("/memories", params={"after": id}, headers=OTHER),
    ]
    for ask in asks:
        theirs, nobodys = ask(id), ask(unknown)
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.text.replace(id, "") == nobodys.text.replace(unknown, "")
    assert client.get("/memories", headers=OTHER).json() == {"memories": []}
    assert client.get(f"/memories/{id}").json()["segment_count"] == 3


def test_without_its_store_a_server_translates_and_what_needs_it_waits(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.errors import StoreUnavailableError

    id = made(client)["id"]
    translated(client, "Seite 1 von 2.", memory_id=id)

    def gone(_: Database) -> Any:
        raise StoreUnavailableError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "reading", gone)
        for _ in range(3):
            assert translated(client, "Hallo.")["translatedText"] == "Hallo."
            body = {**ASK, "q": "Hallo.", "memory_id": id}
            for answer in (client.post("/translate", json=body), client.get("/memories")):
                assert answer.status_code == 503
                assert int(answer.headers["retry-after"]) > 0
    assert translated(client, "Seite 1 von 2.", memory_id=id)["translatedText"] == "Page 1 of 2."


def test_a_server_without_a_store_keeps_none() -> None:
    with served() as (client, _):
        assert client.get("/memories").json() == {"memories": []}
        for answer in (
            client.post("/memories", json=NEW),
            client.post("/translate", json={**ASK, "q": "a", "memory_id": "x"}),
        ):
            assert answer.status_code == 501
            assert "MACARON_STORE" in answer.json()["error"]


def test_with_an_open_source_a_memory_is_for_the_texts_in_its_language(tmp_path: Path) -> None:
    settings = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    german = "Das Haus ist sehr groß und der Garten auch."
    french = "La maison est très grande et le jardin aussi."
    spanish = "La casa es muy grande y el jardín también."
    english = "This text is in English already, as everybody can see."
    translators = [
        EchoTranslator(),
        EchoTranslator("echo-fr-en", "fr", "en"),
        EchoTranslator("echo-es-fr", "es", "fr"),
    ]
    with served(*translators, settings=settings) as (client, _):
        segments = [{"source": each, "target": "Yes!"} for each in (german, french, spanish)]
        id = made(client, source="de-AT", segments=segments)["id"]
        for stream in (False, True):
            body = {"q": [spanish, french, german, english], "source": "auto", "target": "en"}
            asked = client.post("/translate", json={**body, "memory_id": id, "stream": stream})
            told = asked.json() if not stream else json.loads(asked.text.split("data: ")[-1])
            found = told["translations"]
            assert [each["text"] for each in found] == [spanish, french, "Yes!", english]
            assert [each["source"] for each in found] == ["es", "fr", "de", "en"]
            assert ["memory" in each["warnings"] for each in found] == [True, True, False, False]
            origins = [[each["origin"] for each in text["origins"]] for text in found]
            assert origins == [[], ["model"], ["memory"], []]
        other = made(client, source="es", segments=segments)["id"]  # by way of French
        asked = client.post("/translate", json={**body, "memory_id": other, "stream": False})
        told = asked.json()["translations"]
        assert [each["text"] for each in told] == [spanish, french, german, english]
        assert [each["warnings"] for each in told[1:]] == [["memory"], ["memory"], []]
        refused = {**body, "memory_id": id, "target": "fr"}
        assert client.post("/translate", json=refused).status_code == 400


def test_no_memory_is_of_a_language_that_is_left_open(client: TestClient) -> None:
    answer = client.post("/memories", json={**NEW, "source": "Auto"})
    assert answer.status_code == 400
    assert "code of a language" in answer.json()["error"]


def test_files_that_take_long_leave_threads_for_all_else(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, go_on, reading = f"/memories/{made(client)['id']}", threading.Event(), []

    def add_file(kept: Any, owner: str, memory: StoredMemory, *_: Any) -> FileRead:
        del kept
        reading.append(owner)
        assert go_on.wait(60)
        return FileRead(memory, 0, 0)

    monkeypatch.setattr(memory_routes, "add_file", add_file)
    with ThreadPoolExecutor(50) as threads:
        try:
            files = {"file": ("a.tmx", b"x")}
            sent = [threads.submit(client.post, f"{path}/tmx", files=files) for _ in range(45)]
            while not reading:
                time.sleep(0.01)
            time.sleep(1)  # all have come
            assert threads.submit(client.get, path).result(10).status_code == 200
        finally:
            go_on.set()
        assert {each.result(30).status_code for each in sent} == {200}


def test_what_others_add_meanwhile_is_not_counted(tmp_path: Path) -> None:
    with contextlib.closing(Store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)) as store:
        limits = MemoryLimits(9, 99, 99)
        kept = store.memories
        memory = kept.create("me", "n", "de", "en", limits)
        kept.add("me", memory.id, [Segment("a", "b")], limits)
        file = io.BytesIO(b"".join(written_tmx([("Ja", "Yes"), ("Nein", "No")], "de", "en")))
        assert add_file(kept, "me", memory, file, limits).added == 2


@pytest.mark.parametrize(("text", "found"), [("übung", 1), ("ÜBUNG", 1), ("ПРИВЕТ", 1), ("x", 0)])
def test_capitals_of_every_language_are_looked_through(
    client: TestClient, text: str, found: int
) -> None:
    segments = [{"source": "Übung macht den Meister.", "target": "Привет!"}]
    path = f"/memories/{made(client, segments=segments)['id']}/segments"
    assert len(client.get(path, params={"text": text}).json()["segments"]) == found
