"""What both clients keep on a server: against the app itself, with a store in a file."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr

from macaron.client import (
    ApiError,
    AsyncClient,
    BatchFailedError,
    Client,
    ConnectionLostError,
    RemoteAnswer,
    RemoteDictionary,
    TranslationOptions,
    stored,
    stored_asynchronous,
)
from serving.server.http.settings import Settings
from tests.unit.serving.echo import served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An echo with a store behind a socket."""
    store = tmp_path_factory.mktemp("store") / "store.db"
    with served(settings=Settings(store=SecretStr(f"sqlite:///{store}"))) as (client, _):
        config = uvicorn.Config(client.app, port=0, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


class Waiting:
    """The asynchronous client, each call of which is waited for: what both do is told once."""

    def __init__(self, client: Any, run: Callable[[Any], Any]) -> None:
        self._client, self._run = client, run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return Waiting(found, self._run)

        def call(*given: Any, **named: Any) -> Any:
            result = found(*given, **named)
            return self._run(_whole(result) if inspect.isasyncgen(result) else result)

        return call


async def _whole(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.fixture(params=["waits", "asyncio"])
def client(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    if request.param == "waits":
        with Client(url) as client:
            yield client
        return
    loop = asyncio.new_event_loop()
    asynchronous = AsyncClient(url)
    yield Waiting(asynchronous, loop.run_until_complete)
    loop.run_until_complete(asynchronous.close())
    loop.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_LOOK_S", 0.05)
    monkeypatch.setattr(stored_asynchronous, "_LOOK_S", 0.05)


def test_glossaries_come_change_and_go(client: Any) -> None:
    made = client.glossaries.create("mine", "de", "en", {"Haus": "mansion"})
    assert made.dictionaries == [RemoteDictionary("de", "en", 1)]
    client.glossaries.add(made.id, "de", "en", {"Hund": "hound"})
    assert client.glossaries.entries(made.id, "de", "en") == {"Haus": "mansion", "Hund": "hound"}
    assert client.glossaries.replace(made.id, "de", "en", {"Tag": "day"}).entry_count == 1
    assert client.glossaries.rename(made.id, "yours").name == "yours"
    assert client.glossaries.get(made.id).name == "yours"
    assert [each.id for each in client.glossaries.list()] == [made.id]
    client.translate("Tag", "en", "de", TranslationOptions(glossary_id=made.id))
    client.glossaries.delete_entries(made.id, "de", "en")
    assert client.glossaries.get(made.id).dictionaries == []
    client.glossaries.delete(made.id)
    assert list(client.glossaries.list()) == []
    with pytest.raises(ApiError) as raised:
        client.glossaries.get(made.id)
    assert raised.value.status == 404


def test_memories_are_filled_used_and_written(client: Any, tmp_path: Path) -> None:
    made = client.memories.create("mine", "de", "en", {"Seite 1 von 2.": "Page 1 of 2."})
    assert client.memories.add(made.id, {"Hallo!": "Hello!"}).segment_count == 2
    client.memories.write_tmx(made.id, tmp_path / "a.tmx")
    read = client.memories.read_tmx(made.id, tmp_path / "a.tmx")
    assert (read.added, read.skipped, read.memory.segment_count) == (2, 0, 4)
    held = list(client.memories.segments(made.id, "hello"))
    assert [each.target for each in held] == ["Hello!", "Hello!"]
    options = TranslationOptions(memory_id=made.id, memory_threshold=90)
    found = client.translate("Neues. Seite 7 von 9.", "en", "de", options)
    assert found.text == "Neues. Page 7 of 9."
    assert [(each.origin, each.score) for each in found.origins] == [
        ("model", None),
        ("memory", 100.0),
    ]
    (tmp_path / "a.txt").write_text("Hallo!\n")
    client.translate_file(
        tmp_path / "a.txt",
        tmp_path / "b.txt",
        "en",
        "de",
        options=TranslationOptions(memory_id=made.id, memory_fuzzy="prefix"),
    )
    assert (tmp_path / "b.txt").read_text() == "Hello!\n"
    assert [each.id for each in client.memories.list()] == [made.id]
    assert client.memories.get(made.id).segment_count == 4
    client.memories.delete(made.id)
    assert list(client.memories.list()) == []


def test_suggestions_come_back_as_tmx(client: Any, tmp_path: Path) -> None:
    client.suggestions.add("Guten Tag!", "Good day!", "de", "en")
    client.suggestions.write_tmx("de", "en", tmp_path / "s.tmx")
    assert "Good day!" in (tmp_path / "s.tmx").read_text()
    client.suggestions.clear()
    client.suggestions.write_tmx("de", "en", tmp_path / "s.tmx")
    assert "Good day!" not in (tmp_path / "s.tmx").read_text()


def test_many_requests_are_answered_in_their_order(client: Any) -> None:
    bodies = [{"q": f"text {n}", "source": "de", "target": "en"} for n in range(5)]
    bodies[3] = {"q": "text 3", "source": "xx", "target": "en"}
    seen: list[int] = []
    answers = client.batches.answer(
        "/translate", bodies, progress=lambda batch: seen.append(batch.total)
    )
    assert [each.ok for each in answers] == [True, True, True, False, True]
    assert [each.body.get("translatedText") for each in answers] == [
        *("text 0", "text 1", "text 2"),
        *(None, "text 4"),
    ]
    assert "xx" in answers[3].body["error"]
    assert seen
    assert client.batches.files() == []


def test_a_batch_is_made_looked_at_and_ended(client: Any) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/translate"}
    line |= {"body": {"q": "a", "source": "de", "target": "en"}}
    file = client.batches.upload("in.jsonl", json.dumps(line).encode())
    assert client.batches.file(file.id).name == "in.jsonl"
    made = client.batches.create(file.id, "/translate", metadata={"mine": "yes"})
    assert made.id in [each.id for each in client.batches.list()]
    assert made.metadata == {"mine": "yes"}
    while not client.batches.get(made.id).ended:
        time.sleep(0.05)
    done = client.batches.get(made.id)
    assert (done.status, done.completed) == ("completed", 1)
    assert b'"translatedText"' in client.batches.content(done.output_file_id)
    with pytest.raises(ApiError, match="has ended already") as raised:
        client.batches.cancel(made.id)
    assert raised.value.status == 400
    for id in (file.id, done.output_file_id):
        client.batches.delete_file(id)


def test_a_batch_of_which_nothing_is_taken_says_why(client: Any) -> None:
    with pytest.raises(BatchFailedError, match="body"):
        client.batches.answer("/translate", ["no object"])
    with pytest.raises(ApiError, match="endpoint"):
        client.batches.answer("/nowhere", [{}])
    assert client.batches.files() == []


def test_both_clients_have_the_same_methods() -> None:
    for name in ("Glossaries", "Memories", "Suggestions", "Batches"):
        first = getattr(stored, f"Remote{name}")
        second = getattr(stored_asynchronous, f"Async{name}")
        members = [each for each in vars(first) if not each.startswith("_")]
        assert members == [each for each in vars(second) if not each.startswith("_")]
        for each in members:
            both = inspect.signature(getattr(first, each)), inspect.signature(getattr(second, each))
            assert both[0].parameters == both[1].parameters


def test_what_may_have_been_made_is_not_made_twice() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ReadError("reset", request=request)

    with (
        Client("http://there", retries=3, transport=httpx.MockTransport(answer)) as client,
        pytest.raises(ConnectionLostError),
    ):
        client.memories.create("mine", "de", "en")
    assert asked == ["/memories"]


def test_what_was_not_begun_is_reported_as_such() -> None:
    from macaron.client.store_calls import answers

    line = {"custom_id": "1", "response": None, "error": {"code": "batch_expired"}}
    found = answers(2, [json.dumps(line).encode()])
    assert [each.ok for each in found] == [False, False]
    assert found[1] == RemoteAnswer(0, {"error": {"code": "batch_expired"}})


BATCH = {
    "id": "b",
    "endpoint": "/translate",
    "status": "in_progress",
    "input_file_id": "f",
    "output_file_id": None,
    "error_file_id": None,
    "request_counts": {"total": 1, "completed": 0, "failed": 0},
    "errors": None,
    "metadata": None,
}
DONE = {**BATCH, "status": "completed", "output_file_id": "out"}
FILE = {
    "id": "f",
    "filename": "a",
    "purpose": "batch",
    "bytes": 1,
    "created_at": 1,
    "expires_at": 2,
}


def asked_of_both(answer: Callable[[httpx.Request], httpx.Response]) -> list[Any]:
    """What both clients make of a batch of a server that answers so; an error as it is."""

    async def later() -> Any:
        transport = httpx.MockTransport(answer)
        async with AsyncClient("http://there", retries=0, transport=transport) as client:
            return await client.batches.answer("/translate", [{}])

    found: list[Any] = []
    with Client("http://there", retries=0, transport=httpx.MockTransport(answer)) as client:
        for act in (
            lambda: client.batches.answer("/translate", [{}]),
            lambda: asyncio.run(later()),
        ):
            try:
                found.append(act())
            except Exception as error:
                found.append(error)
    return found


def test_answers_are_not_lost_where_their_files_cannot_be_deleted() -> None:
    line = {"custom_id": "0", "response": {"status_code": 200, "body": {}}, "error": None}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(503, json={"error": {"message": "the store does not answer"}})
        if request.url.path.endswith("content"):
            return httpx.Response(200, text=json.dumps(line))
        return httpx.Response(200, json=FILE if request.url.path == "/v1/files" else DONE)

    assert asked_of_both(answer) == [[RemoteAnswer(200, {})]] * 2


def test_what_ends_a_wait_for_answers_is_raised_and_all_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored, "_LOOK_S", 0.0)
    monkeypatch.setattr(stored_asynchronous, "_LOOK_S", 0.0)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        asked.append(f"{request.method} {path}")
        if path.endswith("cancel"):  # it has ended meanwhile
            return httpx.Response(400, json={"error": {"message": "ended already"}})
        if path == "/v1/batches/b":
            if asked.count("GET /v1/batches/b") % 2:
                raise httpx.ReadError("reset", request=request)
            return httpx.Response(200, json=DONE)
        return httpx.Response(200, json=FILE if "files" in path else BATCH)

    assert [type(each) for each in asked_of_both(answer)] == [ConnectionLostError] * 2
    deleted = ["DELETE /v1/files/f", "DELETE /v1/files/out"]
    assert [each for each in asked if each.startswith("DELETE")] == deleted * 2


def test_files_are_listed_to_the_last(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    monkeypatch.setattr("macaron.client.store_calls._PAGE", 2)
    made = [client.batches.upload(f"{number}", b"{}").id for number in range(5)]
    assert {each.id for each in client.batches.files()} == set(made)
    for id in made:
        client.batches.delete_file(id)
