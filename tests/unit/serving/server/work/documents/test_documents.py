"""Documents: handed in, translated beside other requests, watched, fetched; and what goes wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import io
import json
import multiprocessing
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deepl
import httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from serving.errors import (
    DeadlineExceededError,
    DecoderLostError,
    DecodingError,
    DeviceMemoryError,
    OverloadedError,
    RequestError,
    ServingError,
    TooLongError,
)
from serving.server.http.settings import Settings
from serving.server.models.catalogue import Catalogue
from serving.server.work.documents import translating
from serving.server.work.documents.shelf import DocumentRecord, Shelf, clean_name, new_id
from serving.server.work.documents.translating import DocumentTranslation
from serving.server.work.translating.jobs import Jobs
from tests.unit.serving.documents.fakes import parts
from tests.unit.serving.documents.test_minified import PLACEHOLDER, minified, report, words
from tests.unit.serving.documents.test_pdf import pdf
from tests.unit.serving.echo import EchoTranslator, served, wait_until

TEXT = "Guten Morgen\n\nEin Haus\n\nGuten Morgen\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """With a folder of documents, and two keys."""
    return Settings(documents=tmp_path / "documents", max_document_bytes=200_000)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with served(EchoTranslator(), settings=settings) as (client, _):
        yield client


def send(
    client: TestClient, content: bytes | str = TEXT, name: str = "a.txt", **fields: str
) -> Any:
    data = {"source": "de", "target": "en", **fields}
    return client.post("/documents", files={"file": (name, content)}, data=data)


def finished(client: TestClient, id: str, **options: Any) -> Any:
    """The state of a document at its end."""
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(client.get(f"/documents/{id}", **options).json())
        return found["state"] in ("done", "failed")

    wait_until(ended)
    return found


def test_a_document_comes_back_whole(client: TestClient) -> None:
    sent = send(client)
    assert sent.status_code == 200
    state = finished(client, sent.json()["id"])
    assert (state["state"], state["format"], state["output_name"]) == ("done", "txt", "a.en.txt")
    assert (state["done"], state["total"]) == (2, 2)  # equal paragraphs count once
    result = client.get(f"/documents/{state['id']}/result")
    assert result.text == TEXT
    assert "a.en.txt" in result.headers["content-disposition"]
    assert client.delete(f"/documents/{state['id']}").status_code == 200
    assert client.get(f"/documents/{state['id']}").status_code == 404


@pytest.mark.parametrize(
    ("wish", "name"), [({}, "a.en.docx"), ({"output_format": "TXT"}, "a.en.txt")]
)
def test_a_pdf_becomes_what_is_asked_for(
    client: TestClient, wish: dict[str, str], name: str
) -> None:
    sent = send(client, pdf("Guten Morgen"), "a.pdf", **wish)
    state = finished(client, sent.json()["id"])
    assert (state["state"], state["output_name"]) == ("done", name)
    result = client.get(f"/documents/{state['id']}/result")
    assert name in result.headers["content-disposition"]
    if wish:
        assert result.text == "Guten Morgen\n"
    else:
        assert result.content.startswith(b"PK")


def test_what_is_translated_already_stays_unless_it_is_asked_for_anew(client: TestClient) -> None:
    source = 'msgid "Haus"\nmsgstr "home"\n\nmsgid "Tor"\nmsgstr ""\n'
    for wish, house in (({}, "home"), ({"retranslate": "true"}, "Haus")):
        state = finished(client, send(client, source, "a.po", **wish).json()["id"])
        result = client.get(f"/documents/{state['id']}/result").text
        assert result == f'msgid "Haus"\nmsgstr "{house}"\n\nmsgid "Tor"\nmsgstr "Tor"\n'


def test_the_columns_of_a_table_are_chosen(client: TestClient) -> None:
    source = 'id,text,"long, text"\n1,Haus,"Tor, alt"\n'
    state = finished(client, send(client, source, "a.csv", columns='"long, text",2').json()["id"])
    assert (state["state"], state["format"], state["total"]) == ("done", "csv", 2)
    assert state["output_name"] == "a.en.csv"
    assert client.get(f"/documents/{state['id']}/result").text == source
    state = finished(client, send(client, source, "a.csv", columns="body").json()["id"])
    assert state["state"] == "failed"
    assert "got 'body'; choose" in state["error"]
    assert state["error"].endswith("the file has 1 'id', 2 'text', 3 'long, text'")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v2/document", {"target_lang": "EN-US", "auth_key": "any"}),
        ("/translate_file", {"source": "de", "target": "en"}),
    ],
)
def test_routes_without_a_field_for_columns_say_where_there_is_one(
    client: TestClient, path: str, fields: dict[str, str]
) -> None:
    refused = client.post(path, files={"file": ("a.csv", "id,text\n1,ja\n")}, data=fields)
    assert refused.status_code == 400
    body = refused.json()
    said = body.get("message") or body["error"]
    assert "in the field columns of /documents" in said
    assert "the file has 1 'id', 2 'text'" in said


def test_events_end_with_the_document(client: TestClient) -> None:
    id = send(client).json()["id"]
    with client.stream("GET", f"/documents/{id}/events") as stream:
        lines = list(stream.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names[-1] == "end"
    assert set(names[:-1]) <= {"progress"}
    last = [line for line in lines if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["state"] == "done"


def test_the_source_is_found_by_the_whole_document(client: TestClient) -> None:
    state = finished(client, send(client, source="auto").json()["id"])
    assert (state["source"], state["state"]) == ("de", "done")


@pytest.mark.parametrize(
    ("content", "name", "fields", "status", "message"),
    [
        (b"MZ", "a.exe", {}, 400, "must be of a known kind"),
        (b"MZ", "a.exe", {}, 400, "got the file extension .exe; save it"),
        (b"MZ", "a", {}, 400, "got no file extension; save it"),
        (b"", "", {}, 400, "the file must be of a known kind|a document is missing"),
        (b"", "a.docx", {}, 400, "a.docx: the file is empty (0 bytes)"),
        (TEXT, "a.txt", {"target": ""}, 400, "target is missing"),
        (TEXT, "a.txt", {"target": "zz"}, 400, "zz is not supported"),
        (TEXT, "a.txt", {"source": "zz"}, 400, "zz is not supported"),
        (TEXT, "a.txt", {"model": "none"}, 404, "model must be one of"),
        (TEXT, "a.txt", {"output_format": "docx"}, 400, "what the file becomes (txt), got 'docx'"),
        (pdf("Ja."), "a.pdf", {"output_format": "odt"}, 400, "becomes (docx or txt), got 'odt'"),
        (TEXT, "a.txt", {"columns": "text"}, 400, "columns are only for csv, tsv and jsonl files"),
        (
            "id,text\n1,ja\n",
            "a.csv",
            {},
            400,
            "/documents, which other routes lack; the file has 1 'id', 2 'text'",
        ),
        ('{"id": "ja"}\n', "a.jsonl", {}, 400, "which other routes lack; the file has 'id'"),
        (b"x" * 300_000, "a.txt", {}, 413, "MACARON_MAX_DOCUMENT_BYTES"),
    ],
)
def test_what_cannot_be_taken_is_refused_at_once_and_leaves_nothing(
    client: TestClient,
    settings: Settings,
    content: bytes | str,
    name: str,
    fields: dict[str, str],
    status: int,
    message: str,
) -> None:
    refused = send(client, content, name, **fields)
    assert refused.status_code == status
    assert any(part in refused.json()["error"] for part in message.split("|"))
    assert settings.documents is not None
    left = settings.documents.rglob("*")
    assert [path.name for path in left if path.name != "waiting"] == []


@pytest.mark.parametrize("path", ["/documents", "/v2/document", "/translate_file"])
def test_two_gigabytes_are_refused_before_they_come(client: TestClient, path: str) -> None:
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2_000_000_000 // 65_536):
            sent += 1
            yield b"a" * 65_536

    head = {
        "Content-Type": "multipart/form-data; boundary=x",
        "Content-Length": "2000000000",
        "Authorization": "DeepL-Auth-Key any-key",
    }
    refused = client.post(path, content=body(), headers=head)
    assert refused.status_code == 413, refused.text
    assert "200000" in refused.text.replace(",", "")
    assert sent <= 1


def test_a_body_that_never_says_its_size_is_refused_while_it_comes(client: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        for _ in range(10_000):
            sent += 65_536
            yield b"a" * 65_536

    head = {"Content-Type": "multipart/form-data; boundary=x"}
    refused = client.post("/documents", content=endless(), headers=head)
    assert refused.status_code == 413


@pytest.mark.parametrize(
    ("body", "head", "status"),
    [
        (b"{}", "application/json", 415),
        (b"rubbish", "multipart/form-data", 400),
        (b"rubbish", "multipart/form-data; boundary=x", 400),
        (b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n--x--', "", 400),
    ],
)
def test_broken_forms_are_refused(client: TestClient, body: bytes, head: str, status: int) -> None:
    head = head or "multipart/form-data; boundary=x"
    assert client.post("/documents", content=body, headers={"Content-Type": head}).status_code == (
        status
    )


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("C:\\Windows\\a.txt", "a.txt"),
        ("a\nb\x00.txt", "ab.txt"),
        ("..", "document"),
        ("x" * 500 + ".txt", "x" * 196 + ".txt"),
    ],
)
def test_names_have_no_folders_and_nothing_that_cannot_be_shown(name: str, kept: str) -> None:
    assert clean_name(name) == kept


def test_a_broken_file_fails_in_plain_words(client: TestClient) -> None:
    state = finished(client, send(client, "{", "a.json").json()["id"])
    assert state["state"] == "failed"
    assert "JSON" in state["error"]
    result = client.get(f"/documents/{state['id']}/result")
    assert result.status_code == 400
    assert state["error"] in result.json()["error"]


def test_nobody_finds_the_document_of_another_key(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"documents": tmp_path / "documents", "api_keys": "first-key second-key"}
    )
    own, other = ({"X-API-Key": key} for key in ("first-key", "second-key"))
    with served(settings=settings) as (client, _):
        data, files = {"target": "en"}, {"file": ("a.txt", TEXT)}
        assert client.post("/documents", files=files, data=data).status_code == 401
        id = client.post("/documents", files=files, data=data, headers=own).json()["id"]
        finished(client, id, headers=own)
        for path in (f"/documents/{id}", f"/documents/{id}/events", f"/documents/{id}/result"):
            assert client.get(path, headers=other).status_code == 404
            assert client.get(path).status_code == 401
        assert client.delete(f"/documents/{id}", headers=other).status_code == 404
        assert client.get(f"/documents/{id}/result", headers=own).status_code == 200


@pytest.mark.parametrize("id", ["a" * 32, "../x", "%2e%2e", "A" * 32])
def test_an_id_that_is_none_is_not_found(client: TestClient, id: str) -> None:
    assert client.get(f"/documents/{id}").status_code == 404


def test_a_server_without_documents_makes_no_folder(tmp_path: Path) -> None:
    with served(settings=Settings()) as (client, _):
        assert client.get(f"/documents/{'a' * 32}").status_code == 404
        assert send(client).status_code == 200  # in a folder of the moment


def test_several_workers_need_a_folder(tmp_path: Path) -> None:
    with served(settings=Settings(workers=2)) as (client, _):
        refused = send(client)
        assert refused.status_code == 501
        assert "set MACARON_DOCUMENTS" in refused.json()["error"]


def test_too_many_that_wait_are_refused(tmp_path: Path) -> None:
    settings = Settings(documents=tmp_path / "documents", max_documents=1)
    echo = EchoTranslator()
    with served(echo, settings=settings) as (client, _):
        echo.stepper.gate.clear()
        first = send(client)
        refused = send(client)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        echo.stepper.gate.set()
        finished(client, first.json()["id"])
        # Its place is free a moment after it is said to be done.
        wait_until(lambda: send(client).status_code == 200)


@pytest.fixture
def url(client: TestClient) -> Iterator[str]:
    """The same app behind a socket."""
    server = uvicorn.Server(uvicorn.Config(client.app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def test_deepls_client_works_unmodified(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep
    monkeypatch.setattr("deepl.translator.time.sleep", lambda _: sleep(0.05))  # it waits 5 s
    deepl_client = deepl.DeepLClient("any-key", server_url=url)
    out = io.BytesIO()
    source = io.BytesIO(TEXT.encode())
    source.name = "a.txt"
    status = deepl_client.translate_document(source, out, source_lang="DE", target_lang="EN-US")
    assert status.done
    assert status.billed_characters == len("Guten MorgenEin Haus")
    assert out.getvalue().decode() == TEXT
    handle = deepl_client.translate_document_upload(TEXT, target_lang="EN-US", filename="a.txt")
    wrong = deepl.DocumentHandle(handle.document_id, "0" * 64)
    with pytest.raises(deepl.DeepLException, match="no such document"):
        deepl_client.translate_document_get_status(wrong)
    deepl_client.translate_document_wait_until_done(handle)
    deepl_client.translate_document_download(handle, io.BytesIO())
    with pytest.raises(deepl.DeepLException, match="Not found"):  # it is given once
        deepl_client.translate_document_download(handle, io.BytesIO())
    handle = deepl_client.translate_document_upload(
        pdf("Guten Morgen"), target_lang="EN-US", filename="a.pdf", output_format="txt"
    )
    deepl_client.translate_document_wait_until_done(handle)
    out = io.BytesIO()
    deepl_client.translate_document_download(handle, out)
    assert out.getvalue() == b"Guten Morgen\n"
    for wish, message in (
        ({"output_format": "pdf"}, "output_format"),
        ({"formality": "more"}, "formality"),
        ({"glossary": "an-id", "source_lang": "DE"}, "MACARON_STORE"),
    ):
        with pytest.raises(deepl.DeepLException, match=message):
            deepl_client.translate_document_upload(
                TEXT, target_lang="EN-US", filename="a.txt", **cast(Any, wish)
            )


def test_a_document_whose_media_deepls_clients_have_taken_out_is_translated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = time.sleep
    monkeypatch.setattr("deepl.translator.time.sleep", lambda _: sleep(0.05))
    source, out = minified(report()), io.BytesIO()
    deepl.DeepLClient("any-key", server_url=url).translate_document(
        io.BytesIO(source), out, source_lang="DE", target_lang="EN-US", filename="a.docx"
    )
    assert parts(out.getvalue())["word/media/image1.png"] == PLACEHOLDER
    assert words(out.getvalue(), "a.docx") == "ein Haus"


def test_the_sentences_of_a_stored_memory_are_not_decoded(tmp_path: Path) -> None:
    settings = Settings.model_validate({"store": f"sqlite:///{tmp_path / 'store.db'}"})
    with served(settings=settings) as (client, _):
        new = {"name": "n", "source": "de", "target": "en"}
        segments = [{"source": "Seite 3 von 10.", "target": "Page 3 of 10."}]
        id = client.post("/memories", json={**new, "segments": segments}).json()["id"]
        content = "Seite 7 von 12. Noch ein Satz.\nSeiten 3 von 10.\n"
        state = finished(client, send(client, content, memory_id=id).json()["id"])
        result = client.get(f"/documents/{state['id']}/result").text
        assert result == "Page 7 of 12. Noch ein Satz.\nPage 3 of 10.\n"
        state = finished(
            client, send(client, content, memory_id=id, memory_threshold="99").json()["id"]
        )
        result = client.get(f"/documents/{state['id']}/result").text
        assert result == "Page 7 of 12. Noch ein Satz.\nSeiten 3 von 10.\n"
        assert send(client, memory_id="a" * 36).status_code == 404
        for wrong in ({"memory_threshold": "-1"}, {"memory_threshold": "101"}, {"target": "de"}):
            assert send(client, memory_id=id, **wrong).status_code == 400


def test_a_memory_is_for_documents_that_are_found_to_be_in_its_language(tmp_path: Path) -> None:
    settings = Settings.model_validate({"store": f"sqlite:///{tmp_path / 'store.db'}"})
    translators = [
        EchoTranslator(),
        EchoTranslator("echo-fr-en", "fr", "en"),
        EchoTranslator("echo-es-fr", "es", "fr"),
    ]
    texts = [
        "Das Haus ist sehr groß und der Garten auch.",
        "La maison est très grande et le jardin aussi.",
        "La casa es muy grande y el jardín también.",
    ]
    with served(*translators, settings=settings) as (client, _):
        new = {"name": "n", "target": "en"}
        segments = [{"source": text, "target": "Yes!"} for text in texts]
        for source, used in (("de", texts[0]), ("es", None)):  # Spanish goes by way of French
            body = {**new, "source": source, "segments": segments}
            id = client.post("/memories", json=body).json()["id"]
            for text in texts:
                sent = send(client, f"{text}\n", source="auto", memory_id=id)
                state = finished(client, sent.json()["id"])
                result = client.get(f"/documents/{state['id']}/result").text
                assert result == ("Yes!\n" if text == used else f"{text}\n")
                assert [w for w in state["warnings"] if "memory" in w] == (
                    []
                    if text == used
                    else [
                        "translated without the memory, which is not for texts from "
                        f"{state['source']} to en"
                    ]
                )


def test_the_terms_of_a_stored_glossary_are_put_in(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    settings = Settings.model_validate({"documents": tmp_path / "documents", "store": store})
    with served(settings=settings) as (client, _):
        dictionary = {
            "source": "de",
            "target": "en",
            "entries": [{"source": "Haus", "target": "X"}],
        }
        made = client.post("/glossaries", json={"name": "n", "dictionaries": [dictionary]})
        id = made.json()["id"]
        state = finished(client, send(client, "Ein Haus\n", glossary_id=id).json()["id"])
        assert client.get(f"/documents/{state['id']}/result").text == "Ein X\n"
        assert send(client, glossary_id="a" * 32).status_code == 404
        refused = send(client, source="auto", glossary_id=id)
        assert "send the source language" in refused.json()["error"]


def test_libretranslates_files(client: TestClient) -> None:
    fields = {"source": "de", "target": "en"}
    done = client.post("/translate_file", files={"file": ("a.txt", TEXT)}, data=fields)
    path = done.json()["translatedFileUrl"].partition("/download_file/")[2]
    assert client.get(f"/download_file/{path}").text == TEXT
    refused = client.post("/translate_file", files={"file": ("a.txt", TEXT)}, data={"target": "en"})
    assert refused.json()["error"] == "Invalid request: missing source parameter"
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"]
    assert ".docx" in settings["supportedFilesFormat"]
    assert ".csv" not in settings["supportedFilesFormat"]


def test_the_address_of_libretranslates_file_is_the_one_behind_a_proxy() -> None:
    with served(settings=Settings(root_path="/behind")) as (client, _):
        fields = {"source": "de", "target": "en"}
        done = client.post("/translate_file", files={"file": ("a.txt", TEXT)}, data=fields)
        url = done.json()["translatedFileUrl"]
        assert url.startswith("http://testserver/behind/download_file/")
        assert client.get(url).text == TEXT


def test_a_file_is_not_translated_for_a_client_that_has_left(tmp_path: Path) -> None:
    echo = EchoTranslator()
    request = httpx.Request(
        "POST",
        "http://there/translate_file",
        files={"file": ("a.txt", TEXT)},
        data={"source": "de", "target": "en"},
    )
    body = {"type": "http.request", "body": request.read(), "more_body": False}
    head = [(name.lower(), value) for name, value in request.headers.raw]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/translate_file",
        "query_string": b"",
        "headers": head,
    }
    settings = Settings.model_validate({"documents": tmp_path})
    with served(echo, settings=settings) as (client, _):
        assert client.portal is not None
        echo.stepper.gate.clear()

        async def leave() -> None:
            came = iter([body])

            async def receive() -> Any:
                if (message := next(came, None)) is not None:
                    return message
                while not list(tmp_path.glob("*/record.json")):
                    await asyncio.sleep(0.01)
                return {"type": "http.disconnect"}

            async def send(_: Any) -> None:
                pass

            await asyncio.wait_for(client.app(scope, receive, send), 10)

        try:
            client.portal.call(leave)
            assert not list(tmp_path.glob("*/record.json"))
        finally:
            echo.stepper.gate.set()


@pytest.mark.parametrize("path", ["/documents", "/translate_file"])
def test_a_document_is_on_the_usage_of_its_key_and_within_its_limit(
    path: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    settings = Settings.model_validate(
        {
            "documents": tmp_path / "documents",
            "store": store,
            "admin_key": "admin-key-of-the-test",
        }
    )
    admin = {"X-API-Key": "admin-key-of-the-test"}
    with served(settings=settings) as (client, _):
        body = {"label": "small", "characters_a_month": 30}
        made = client.post("/admin/keys", json=body, headers=admin).json()
        own, data = {"X-API-Key": made["key"]}, {"source": "de", "target": "en"}

        def sent() -> Any:
            return client.post(path, files={"file": ("a.txt", TEXT)}, data=data, headers=own)

        first = sent()
        assert first.status_code == 200, first.text
        if path == "/documents":
            finished(client, first.json()["id"], headers=own)
        usage = client.get("/v2/usage", headers=own).json()
        assert usage == {"character_count": len("Guten MorgenEin Haus"), "character_limit": 30}
        second = sent()
        if path == "/documents":
            state = finished(client, second.json()["id"], headers=own)
            assert state["state"] == "failed"
            assert "30" in state["error"]
        else:
            assert second.status_code == 400


LONG = " ".join(f"Der {number}. Hund lief weg." for number in range(200))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", LONG),
        ("a.html", f"<p>{LONG.replace('Hund', '<b>Hund</b>')}</p>"),
        ("a.md", f"- {LONG}\n- kurz\n"),
        ("a.po", f'msgid "{LONG}"\nmsgstr ""\n'),
    ],
)
def test_a_paragraph_of_more_characters_than_a_request_may_have_is_translated(
    name: str, content: str, tmp_path: Path
) -> None:
    settings = Settings(documents=tmp_path / "documents", max_text_chars=300, max_queue=128)
    echo = EchoTranslator()
    with served(echo, settings=settings) as (client, _):
        state = finished(client, send(client, content, name).json()["id"])
        assert (state["state"], state["warnings"]) == ("done", [])
        result = client.get(f"/documents/{state['id']}/result").text
    assert result == content.replace('msgstr ""', f'msgstr "{LONG}"')


# What follows is about the room itself, with jobs of its own.

ONE_THREAD = Settings(threads=1)


class FakeJobs:
    """Translates by turning texts round; `texts` are those that it was asked for."""

    idle_s = 60.0

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.before: Callable[[list[str]], None] = lambda _: None

    async def translate(self, job: Any, _: object, __: object) -> Any:
        await asyncio.sleep(0)
        self.before(job.texts)
        self.texts += job.texts
        results = [SimpleNamespace(text=text[::-1], hypotheses=()) for text in job.texts]
        return SimpleNamespace(translations=results)


class FakeCatalogue:
    """Knows one pair."""

    def pivot(self, *_: object) -> None:
        """None is needed."""

    def codes(self, source: str, target: str, _: str | None) -> tuple[str, str]:
        """As they are."""
        return source, target


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


@pytest.fixture
def jobs() -> FakeJobs:
    return FakeJobs()


def put(shelf: Shelf, text: str, **changes: Any) -> DocumentRecord:
    record = DocumentRecord(
        id=new_id(), owner="", client="c", name="a.txt", source="de", target="en", created=1.0
    )
    record = dataclasses.replace(record, **changes)
    shelf.add(record, io.BytesIO(text.encode()))
    return record


def run(
    shelf: Shelf, jobs: FakeJobs, record: DocumentRecord, settings: Settings = ONE_THREAD
) -> None:
    translation = DocumentTranslation(
        shelf, cast(Jobs, jobs), cast(Catalogue, FakeCatalogue()), settings
    )
    asyncio.run(translation.run(record))


def paragraphs(count: int) -> str:
    return "\n\n".join(f"Absatz {number}" for number in range(count)) + "\n"


def test_who_comes_after_a_killed_process_translates_nothing_twice(
    shelf: Shelf, jobs: FakeJobs
) -> None:
    record = put(shelf, paragraphs(100))

    class Killed(BaseException):
        pass

    def die(_: list[str]) -> None:
        if len(jobs.texts) >= enough:
            raise Killed

    jobs.before = die
    for enough in (40, 70):  # noqa: B007 (it is read by `die`)
        with pytest.raises(Killed):
            run(shelf, jobs, record)
        with shelf.progress(record).open("a") as file:
            file.write('[99, "half a li')  # what it was writing
    before, jobs.before = len(jobs.texts), lambda _: None
    with shelf.claimed() as found:
        assert found is not None
        run(shelf, jobs, found)
    assert 70 <= before < 100
    assert len(jobs.texts) == len(set(jobs.texts)) == 100
    done = shelf.get(record.id, "")
    assert (done.state, done.done) == ("done", 100)
    assert (
        shelf.result(done).read_text()
        == "\n\n".join(f"Absatz {number}"[::-1] for number in range(100)) + "\n"
    )


def test_what_was_kept_of_other_pieces_does_not_take_their_place(
    shelf: Shelf, jobs: FakeJobs
) -> None:
    """As after a restart with another MACARON_MAX_TEXT_CHARS."""
    long = "".join(f"Das ist ein ganz einfacher Satz mit der Nummer {n}. " for n in range(30))
    record = put(shelf, f"{long.strip()}\n\n" + paragraphs(60))

    class Killed(BaseException):
        pass

    def die(_: list[str]) -> None:
        if len(jobs.texts) >= 40:
            raise Killed

    jobs.before = die
    with pytest.raises(Killed):
        run(shelf, jobs, record, Settings(threads=1, max_text_chars=400))
    cut, jobs.before = len(jobs.texts), lambda _: None
    assert cut >= 40
    run(shelf, jobs, record)
    fresh = put(shelf, shelf.source(record).decode())
    run(shelf, FakeJobs(), fresh)
    assert shelf.result(record).read_text() == shelf.result(fresh).read_text()


def _claims(folder: Path, claimed: Any, release: Any) -> None:
    with Shelf(folder).claimed() as record:
        claimed.put(record is not None)
        release.wait(30)


def test_two_processes_never_have_one_document(shelf: Shelf, tmp_path: Path) -> None:
    put(shelf, TEXT)
    context = multiprocessing.get_context("spawn")
    claimed, release = context.Queue(), context.Event()
    processes = [
        context.Process(target=_claims, args=(tmp_path / "shelf", claimed, release))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    found = [claimed.get(timeout=60) for _ in processes]
    assert sorted(found) == [False, False, True]
    for process in processes:
        process.kill()  # nobody lets go of the lock
        process.join()
    with shelf.claimed() as record:
        assert record is not None


def test_a_thousand_documents_that_are_done_cost_nothing(shelf: Shelf, tmp_path: Path) -> None:
    for number in range(1000):
        shelf.save(put(shelf, TEXT, created=float(number), state="done"))
    waits = put(shelf, TEXT, created=2000.0)
    for path in (tmp_path / "shelf").glob("*/record.json"):
        if path.parent.name != waits.id:
            path.unlink()  # none of them is read
    assert shelf.num_waiting == 1
    with shelf.claimed() as found:
        assert found == waits


def test_a_full_disk_ends_the_document_and_not_the_server(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(translating, "write_whole", full)
        state = finished(client, send(client).json()["id"])
    assert state["state"] == "failed"
    assert "No space left" in state["error"]
    assert finished(client, send(client).json()["id"])["state"] == "done"


def test_a_document_that_is_deleted_meanwhile_is_translated_no_further(
    client: TestClient, settings: Settings
) -> None:
    id = send(client, paragraphs(2000)).json()["id"]
    wait_until(lambda: client.get(f"/documents/{id}").json()["state"] == "translating")
    assert client.delete(f"/documents/{id}").status_code == 200
    assert finished(client, send(client).json()["id"])["state"] == "done"
    assert settings.documents is not None
    assert id not in [path.name for path in settings.documents.iterdir()]


def test_what_is_busy_is_asked_again(shelf: Shelf, jobs: FakeJobs) -> None:
    refusals = iter([OverloadedError("full"), OverloadedError("full")])

    def refuse(_: list[str]) -> None:
        for error in refusals:
            error.retry_after_s = 0.001
            raise error

    jobs.before = refuse
    record = put(shelf, TEXT)
    run(shelf, jobs, record)
    assert shelf.get(record.id, "").state == "done"


def test_while_clients_ask_there_is_one_unit_at_a_time(shelf: Shelf, jobs: FakeJobs) -> None:
    asked: list[int] = []
    jobs.before = lambda texts: asked.append(len(texts))
    run(shelf, jobs, put(shelf, paragraphs(40)))
    assert max(asked) == 16
    asked.clear()
    jobs.idle_s = 0.5
    run(shelf, jobs, put(shelf, paragraphs(40)))
    assert asked == [1] * 40


@pytest.mark.parametrize("whole", [False, True], ids=["by its text", "by its request"])
def test_a_unit_that_cannot_be_translated_stays_with_a_warning(
    shelf: Shelf, jobs: FakeJobs, whole: bool
) -> None:
    def refuse(texts: list[str]) -> None:
        if "Ein Haus" in texts and whole:
            raise TooLongError("it is too long")
        if "Ein Haus" in texts:
            error = RequestError("it is too long")
            error.index = texts.index("Ein Haus")
            raise error

    jobs.before = refuse
    record = put(shelf, TEXT)
    run(shelf, jobs, record)
    done = shelf.get(record.id, "")
    assert shelf.result(done).read_text() == "negroM netuG\n\nEin Haus\n\nnegroM netuG\n"
    assert done.warnings == ("left as it is: 'Ein Haus' (it is too long)",)


def test_a_unit_on_which_the_model_fails_ends_no_document(shelf: Shelf, jobs: FakeJobs) -> None:
    asked: list[list[str]] = []

    def fail(texts: list[str]) -> None:
        asked.append(texts)
        if "Ein Haus" in texts:
            raise DecodingError("the model gave a non-finite score for this sentence")

    jobs.before = fail
    record = put(shelf, TEXT)
    run(shelf, jobs, record)
    done = shelf.get(record.id, "")
    assert shelf.result(done).read_text() == "negroM netuG\n\nEin Haus\n\nnegroM netuG\n"
    reason = "the model gave a non-finite score for this sentence"
    assert done.warnings == (f"left as it is: 'Ein Haus' ({reason})",)
    assert asked == [["Guten Morgen", "Ein Haus"], ["Guten Morgen"], ["Ein Haus"]]


@pytest.mark.parametrize("fatal", [DecoderLostError, DeviceMemoryError])
def test_a_unit_that_ends_the_decoding_ends_no_document(
    shelf: Shelf, jobs: FakeJobs, fatal: type[ServingError]
) -> None:
    asked: list[list[str]] = []

    def fail(texts: list[str]) -> None:
        asked.append(texts)
        if "Ein Haus" in texts:
            raise at_once(fatal("decoding has ended"))

    jobs.before = fail
    record = put(shelf, TEXT)
    run(shelf, jobs, record)
    done = shelf.get(record.id, "")
    assert shelf.result(done).read_text() == "negroM netuG\n\nEin Haus\n\nnegroM netuG\n"
    assert done.warnings == ("left as it is: 'Ein Haus' (decoding has ended)",)
    # Before a text is to blame, something else has been decoded.
    (other,), (another,) = asked.pop(3), asked.pop(7)
    assert re.fullmatch(r"A \d+", other)
    assert re.fullmatch(r"A \d+", another)
    both, first, second = ["Guten Morgen", "Ein Haus"], ["Guten Morgen"], ["Ein Haus"]
    assert asked == [both] * 3 + [first] + [second] * 3


@pytest.mark.parametrize(
    "errors",
    [
        [DecoderLostError("decoding has ended")] * 5,
        [DecoderLostError("decoding has ended")] * 20,
        [DeadlineExceededError("late"), OverloadedError("full")] * 5,
    ],
    ids=["lost", "lost for long", "busy"],
)
def test_no_unit_is_to_blame_where_nothing_is_decoded(
    shelf: Shelf, jobs: FakeJobs, errors: list[ServingError]
) -> None:
    failures = iter(errors)

    def fail(_: list[str]) -> None:
        for error in failures:
            raise at_once(error)

    jobs.before = fail
    record = put(shelf, TEXT)
    run(shelf, jobs, record)
    done = shelf.get(record.id, "")
    assert (done.state, done.warnings) == ("done", ())
    assert next(failures, None) is None


def at_once(error: ServingError) -> ServingError:
    """The error, after which hardly anyone waits."""
    error.retry_after_s = 0.001
    return error


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_is_opened_while_the_server_ends_is_closed(
    shelf: Shelf, jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    closed: list[bool] = []

    class SlowSentences:
        def __init__(self, *_: object) -> None:
            begun.set()
            may_end.wait(20)

        def close(self) -> None:
            closed.append(True)

    translation = DocumentTranslation(
        shelf, cast(Jobs, jobs), cast(Catalogue, FakeCatalogue()), ONE_THREAD
    )

    async def cancelled() -> None:
        task = asyncio.create_task(translation.run(put(shelf, TEXT)))
        await asyncio.to_thread(begun.wait, 20)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
        assert not task.done()  # nobody else may have the document yet
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(translating, "DocumentSentences", SlowSentences)
    asyncio.run(cancelled())
    assert closed == [True]


def test_what_an_earlier_server_has_left_is_finished_and_what_is_old_goes(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    shelf = Shelf(folder)
    left = put(shelf, TEXT, state="translating", created=time.time())
    old = put(shelf, TEXT, state="done", ended=time.time() - 25 * 3600)
    with served(settings=Settings(documents=folder)) as (client, _):
        assert client.portal is not None
        client.portal.call(_start, client)
        assert finished(client, left.id)["state"] == "done"
        wait_until(lambda: client.get(f"/documents/{old.id}").status_code == 404)
        client.portal.call(client.app.state.backend.documents.close)


async def _start(client: Any) -> None:
    client.app.state.backend.documents.start()
