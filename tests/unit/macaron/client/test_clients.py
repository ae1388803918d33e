"""Both clients: against the app itself, and against servers that refuse, break off or are away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from macaron.client import (
    ApiError,
    AsyncClient,
    Client,
    ConnectionLostError,
    DocumentFailedError,
    DocumentOptions,
    Ranked,
    RemoteDocument,
    RemotePartial,
    RemoteTranslation,
    TranslationOptions,
    calls,
)
from macaron.client.retries import Retries
from tests.unit.serving.documents.test_pdf import pdf
from tests.unit.serving.echo import EchoTranslator, served

Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An echo behind a socket."""
    with served(EchoTranslator()) as (client, _):
        config = uvicorn.Config(client.app, port=0, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; gives how long they would have."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("macaron.client.synchronous.wait", waits.append)
    monkeypatch.setattr("macaron.client.asynchronous.wait", sleep)
    return waits


def both(answer: Answer, act: Callable[[Any], Any], retries: int = 4) -> list[Any]:
    """What each client makes of a server that answers so."""

    async def later() -> Any:
        transport = httpx.MockTransport(answer)
        async with AsyncClient("http://there", retries=retries, transport=transport) as client:
            return await act(client)

    with Client("http://there", retries=retries, transport=httpx.MockTransport(answer)) as client:
        return [act(client), asyncio.run(later())]


def test_a_text_is_translated(url: str) -> None:
    with Client(url, api_key="secret-key") as client:
        options = TranslationOptions(alternatives=1, decoding={"beam_size": 2})
        found = client.translate("abc", "en", "de", options)
        assert found.text == "abc"
        assert found.model == "echo-de-en"
        assert [hypothesis.text for hypothesis in found.hypotheses] == ["abc", "acc"]
        assert found.hypotheses[0].score > found.hypotheses[1].score
        assert client.translate_all(["ab", "cd"], "en")[1].confidence
        assert client.languages() == {"de": ["en"], "en": []}
        assert client.models()[0].pairs == [("de", "en")]
        client.wait_ready()


def test_asyncio_translates_texts_side_by_side(url: str) -> None:
    async def act() -> list[str]:
        async with AsyncClient(url) as client:
            await client.wait_ready()
            found = await asyncio.gather(*(client.translate(f"t{n}", "en", "de") for n in range(8)))
            streamed = [event async for event in client.stream("ab", "en", "de")]
            assert isinstance(streamed[-1], RemoteTranslation)
            return [each.text for each in found]

    assert asyncio.run(act()) == [f"t{n}" for n in range(8)]


def test_a_stream_grows_to_the_translation(url: str) -> None:
    with Client(url) as client:
        *parts, last = client.stream("abcdef", "en", "de")
    assert isinstance(last, RemoteTranslation)
    assert parts
    for part in parts:
        assert isinstance(part, RemotePartial)
        assert last.text.startswith(part.text)


def test_a_streamed_text_may_contain_signs_that_elsewhere_end_lines(url: str) -> None:
    text = "ab\u2028cd\x85ef\x0bgh\x1cij"

    async def later() -> str:
        async with AsyncClient(url) as client:
            return [event.text async for event in client.stream(text, "en", "de")][-1]

    with Client(url) as client:
        *_, last = client.stream(text, "en", "de")
        assert last.text == client.translate(text, "en", "de").text
    assert asyncio.run(later()) == last.text
    assert "\u2028" in last.text


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (lambda client: client.translate_all("abc", "en"), "texts"),
        (lambda client: client.embed("abc"), "texts"),
        (lambda client: client.rerank("query", "abc"), "texts"),
        (lambda client: client.classify("abc"), "texts"),
        (lambda client: client.classify(["abc"], "abc"), "pairs"),
        (
            lambda client: client.translate("a", "en", options=TranslationOptions(required="abc")),
            "required",
        ),
    ],
)
def test_one_text_is_not_taken_for_a_list_of_its_letters(
    act: Callable[[Client], object], name: str
) -> None:
    with Client("http://there") as client, pytest.raises(TypeError, match=rf"{name} .*\['abc'\]"):
        act(client)


def test_a_file_comes_back_translated(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Guten Morgen\n")
    seen: list[RemoteDocument] = []
    # Nobody waits here, so that the server is asked as fast as it answers.
    with Client(url) as client:
        done = client.translate_file(
            tmp_path / "a.txt", tmp_path / "b.txt", "en", "de", progress=seen.append
        )
        assert (done.state, done.output_name) == ("done", "a.en.txt")
        assert (tmp_path / "b.txt").read_text() == "Guten Morgen\n"
        with pytest.raises(ApiError) as raised:  # it has been forgotten
            client._call(calls.document(done.id))
        assert raised.value.status == 404
        (tmp_path / "c.json").write_text("{")
        with pytest.raises(DocumentFailedError, match="JSON"):
            client.translate_file(tmp_path / "c.json", tmp_path / "d.json", "en", "de")
        assert not (tmp_path / "d.json").exists()
    assert seen[-1] == done

    async def act() -> None:
        async with AsyncClient(url) as client:
            await client.translate_file(tmp_path / "a.txt", tmp_path / "e.txt", "en", "de")

    asyncio.run(act())
    assert (tmp_path / "e.txt").read_text() == "Guten Morgen\n"


def test_documents_are_read_and_written_as_is_asked_for(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "Haus"\nmsgstr "home"\n')
    (tmp_path / "a.csv").write_text('id,"a, b"\n1,Haus\n')
    (tmp_path / "a.txt").write_text("Haus\n")
    (tmp_path / "a.PDF").write_bytes(pdf("Guten Morgen"))
    asked = {
        "a.po": DocumentOptions(retranslate=True),
        "a.csv": DocumentOptions(columns=["a, b"]),
        "a.txt": DocumentOptions(bilingual=True),
    }
    expected = {
        "a.po": 'msgid "Haus"\nmsgstr "Haus"\n',
        "a.csv": 'id,"a, b"\n1,Haus\n',
        "a.txt": "Haus\nHaus\n",
        "a.PDF": "Guten Morgen\n",
    }

    async def act() -> None:
        async with AsyncClient(url) as client:
            for name in expected:
                out = tmp_path / ("d.txt" if name == "a.PDF" else f"d.{name}")
                options = asked.get(name, DocumentOptions())
                await client.translate_file(
                    tmp_path / name, out, "en", "de", document_options=options
                )
                assert out.read_text() == expected[name]

    with Client(url) as client:
        for name in expected:
            out = tmp_path / ("c.txt" if name == "a.PDF" else f"c.{name}")
            options = asked.get(name, DocumentOptions())
            client.translate_file(tmp_path / name, out, "en", "de", document_options=options)
            assert out.read_text() == expected[name]
        client.translate_file(tmp_path / "a.PDF", tmp_path / "c.docx", "en", "de")
        assert (tmp_path / "c.docx").read_bytes().startswith(b"PK")
        with pytest.raises(ApiError, match=r"becomes \(docx or txt\), got 'odt'"):
            client.translate_file(tmp_path / "a.PDF", tmp_path / "c.odt", "en", "de")
        with pytest.raises(ApiError, match=r"the file has 1 'id', 2 'a, b'"):
            client.translate_file(tmp_path / "a.csv", tmp_path / "e.csv", "en", "de")
    asyncio.run(act())


def test_what_the_server_refuses_is_raised_with_its_words(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(ApiError, match="xx") as raised:
            client.translate("a", "xx", "de")
        assert (raised.value.status, raised.value.code) == (400, "unknown_language")
        assert raised.value.request_id
        with pytest.raises(ApiError, match="xx"):
            list(client.stream("a", "xx", "de"))


def test_a_busy_server_is_asked_again_when_it_says(waited: list[float]) -> None:
    asked = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked % 3:
            body = {"error": "the queue is full", "code": "overloaded"}
            return httpx.Response(503, json=body, headers={"retry-after": "7"})
        return httpx.Response(200, json=[{"index": 1, "score": 0.5}])

    found = both(answer, lambda client: client.rerank("q", ["a", "b"]))
    assert found == [[Ranked(1, 0.5)]] * 2
    assert waited == [7.0] * 4


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (401, 1), (500, 1), (504, 1), (429, 3)])
def test_only_what_may_pass_is_tried_again(status: int, tries: int, waited: list[float]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text="<html>a proxy</html>")

    with pytest.raises(ApiError, match="a proxy") as raised:
        both(answer, lambda client: client.models(), retries=2)
    assert raised.value.status == status
    assert len(waited) == tries - 1


@pytest.mark.parametrize(
    "answered", [{"text": "<html>a page</html>"}, {"json": []}, {"json": {"other": 1}}], ids=str
)
def test_the_answer_of_another_server_is_named(answered: dict[str, Any]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, **answered)

    for act in (lambda client: client.models(), lambda client: client.translate("a", "en")):
        with pytest.raises(ApiError, match=r"there/\w+ does not answer as a Macaron server does"):
            both(answer, act)


def test_a_wait_of_an_hour_is_left_to_the_caller(waited: list[float]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(429, text="{}", headers={"retry-after": "3600"})

    with pytest.raises(ApiError) as raised:
        both(answer, lambda client: client.models())
    assert raised.value.retry_after_s == 3600
    assert waited == []


def test_a_lost_connection_is_tried_again_and_then_raised(waited: list[float]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with pytest.raises(ConnectionLostError, match="reset"):
        both(answer, lambda client: client.embed(["a"]), retries=3)
    assert len(waited) == 3


def test_waits_double_and_vary() -> None:
    retries = Retries(10)
    waits = [retries.wait_s(tried, None) or 0 for tried in range(1, 11)]
    assert all(0.125 * 2**n <= wait <= 30 for n, wait in zip(range(7), waits, strict=False))
    assert retries.wait_s(11, None) is None


def test_a_stream_that_breaks_off_is_no_translation() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text='event: partial\ndata: {"index": 0, "text": "a"}\n\n')

    with (
        Client("http://there", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(ConnectionLostError, match="broke off"),
    ):
        list(client.stream("a", "en"))


def test_an_error_within_a_stream_is_raised() -> None:
    told = {"error": "not finished in time", "code": "deadline_exceeded", "hint": "send less"}
    data = json.dumps(told)

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=f"event: error\ndata: {data}\n\n")

    with (
        Client("http://there", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(ApiError, match="in time; send less") as raised,
    ):
        list(client.stream("a", "en"))
    assert raised.value.code == "deadline_exceeded"


def test_vectors_and_classes_are_read() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/classify":
            labels = [{"label": "a", "probability": 0.8}, {"label": "b", "probability": 0.2}]
            return httpx.Response(
                200, json={"classifications": [{**labels[0], "labels": labels}], "model": "m"}
            )
        rows = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
        return httpx.Response(200, json={"data": rows, "model": "m"})

    for vectors in both(answer, lambda client: client.embed(["x", "y"], "m")):
        assert vectors.vectors == [[1.0], [2.0]]
    for labels in both(answer, lambda client: client.classify(["x"], ["y"])):
        assert labels[0].all == {"a": 0.8, "b": 0.2}
