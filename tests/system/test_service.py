"""`bentoml serve` in a process of its own: what no test inside the process can show."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.systems.processes.http_server import free_port
from serving import Translator
from tests.system.server import (
    PAIR,
    ROOT,
    Server,
    command,
    environment,
    running,
    unloadable,
)

LONG = {"beam_size": 8, "min_length": 200, "max_length": 256}
"""Options that keep even a tiny model busy for a while."""

STREAM = {
    "q": [f"Ein Text, der lange dauert: {number}." for number in range(100)],
    **PAIR,
    "options": LONG,
    "stream": True,
}
"""A request of texts that take long, each answered as it is done."""


def assert_there_is_room(server: Server, ask: Callable[[Server], httpx.Response]) -> None:
    """A request is answered at once, or after the few moments in which the server sees that
    clients have left; their texts alone would take it far longer."""
    refused = 0
    while (answer := ask(server)).status_code == 503 and refused < 5:
        refused += 1
        time.sleep(int(answer.headers["Retry-After"]))
    assert answer.status_code == 200


def short(server: Server) -> httpx.Response:
    """The answer to a request of one short text."""
    return server.ask("kurz", timeout_s=60)


def left(server: Server) -> httpx.Response:
    """The beginning of the answer to a stream of many texts, whose client then leaves."""
    with httpx.stream("POST", f"{server.url}/translate", json=STREAM, timeout=60) as response:
        next(response.iter_text())
        return response


def request_head(body: str) -> str:
    return (
        "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )


@pytest.fixture(scope="module")
def bundles(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny bundle in it."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(tiny_bundle, folder / "tiny")
    return folder


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(bundles, tmp_path_factory.mktemp("server")) as server:
        yield server


def test_answers_are_those_of_the_python_interface(server: Server, bundles: Path) -> None:
    texts = ["Guten Morgen!", "", "Das ist ein Test."]
    wanted = Translator(bundles / "tiny", threads=1).translate(texts)
    answer = server.ask(texts).json()
    assert answer["translatedText"] == [translation.text for translation in wanted]
    for found, translation in zip(answer["translations"], wanted, strict=True):
        scores = [hypothesis["score"] for hypothesis in found["hypotheses"]]
        assert scores == [hypothesis.score for hypothesis in translation.hypotheses]
        assert found["warnings"] == list(translation.warnings)


def test_public_routes_are_ours_and_not_bentomls(server: Server) -> None:
    for path in ("/livez", "/readyz", "/languages", "/models", "/limits", "/openapi.json"):
        response = httpx.get(server.url + path, timeout=60)
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert "googletagmanager" not in httpx.get(server.url, timeout=60).text
    for path in ("/nowhere", "/docs.json"):
        response = httpx.get(server.url + path, timeout=60)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert httpx.put(f"{server.url}/livez", timeout=60).json()["code"] == "method_not_allowed"


def test_concurrent_requests_share_a_batch(server: Server) -> None:
    texts = [f"Satz Nummer {number}" for number in range(12)]

    def translate(text: str) -> Any:
        return server.ask(text, options=LONG).json()["translations"][0]

    alone = [translate(text) for text in texts]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(translate, texts))
    assert max(translation["timing"]["batch_size"] for translation in together) > 1
    assert [t["hypotheses"] for t in together] == [t["hypotheses"] for t in alone]


def test_malformed_requests_get_an_answer_and_do_no_harm(server: Server) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    huge = b"Content-Length: 99999999999\r\nConnection: close\r\n\r\n{"
    started = time.monotonic()
    assert b" 413 " in server.send(head + huge).split(b"\r\n")[0]
    assert time.monotonic() - started < 10  # before the time for a body that does not come is over
    chunked = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    assert b" 413 " in server.send(head + chunked + chunk * 20 + b"0\r\n\r\n").split(b"\r\n")[0]
    short = b"Content-Length: 5\r\nConnection: close\r\n\r\n" + json.dumps({"q": "a"}).encode()
    assert b" 400 " in server.send(head + short).split(b"\r\n")[0]
    server.send(head + b"Content-Length: 1000\r\n\r\n{", read=False)  # and leaves
    assert b" 400 " in server.send(b"\x16\x03\x01 nonsense\r\n\r\n").split(b"\r\n")[0]
    assert server.ask("Es geht weiter.").status_code == 200


def test_clients_that_leave_free_their_rows(server: Server) -> None:
    body = json.dumps({"q": ["Ein Text, der lange dauert."] * 100, **PAIR, "options": LONG})
    for _ in range(10):  # 1000 texts, twice what the queue holds
        server.send((request_head(body) + body).encode(), read=False)
    assert_there_is_room(server, short)


def test_a_stream_ends_with_the_answer(server: Server) -> None:
    body = {"q": "Das ist ein Test. Und noch einer.", **PAIR, "stream": True, "alignments": True}
    with httpx.stream("POST", f"{server.url}/translate", json=body, timeout=60) as response:
        blocks = "".join(response.iter_text()).removesuffix("\n\n").split("\n\n")
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    assert [event["event"] for event in events[-1:]] == ["done"]
    whole = json.loads(events[-1]["data"])
    assert whole["translatedText"] == server.ask(body["q"]).json()["translatedText"]
    assert whole["translations"][0]["hypotheses"][0]["alignment"]
    for event in events[:-1]:
        assert event["event"] == "partial"
        assert whole["translatedText"].startswith(json.loads(event["data"])["text"])
    assert len(events) > 1


def test_clients_that_leave_their_streams_free_their_rows(server: Server) -> None:
    body = json.dumps(STREAM)
    for _ in range(10):  # 1000 texts, twice what the queue holds
        server.send((request_head(body) + body).encode(), read=False)
    assert_there_is_room(server, left)
    assert_there_is_room(server, short)


def test_termination_finishes_what_was_accepted(bundles: Path, tmp_path: Path) -> None:
    body = json.dumps({"q": ["Langer Text"] * 4, **PAIR, "options": LONG, "timeout_s": 100})
    with (
        running(bundles, tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=110) as connection,
    ):
        connection.sendall((request_head(body) + body).encode())
        # It was sent first, so once this is answered it has been accepted.
        assert httpx.get(f"{server.url}/livez", timeout=60).status_code == 200
        server.process.terminate()
        assert b" 200 OK" in connection.recv(65536).split(b"\r\n")[0]
        assert server.process.wait(60) == 0


def damaged(bundle: Path) -> None:
    with (bundle / "step.onnx").open("ab") as file:
        file.write(b"x")


def newer(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))


@pytest.mark.parametrize(
    ("spoil", "settings", "message"),
    [
        (damaged, {}, "step.onnx: sha256 is"),
        (newer, {}, "bundle format 99 is newer than this runtime reads"),
        (shutil.rmtree, {}, "contains no bundle; set MACARON_BUNDLES"),
        (None, {"MACARON_MAX_TEXTS": "many"}, "MACARON_MAX_TEXTS must be"),
    ],
)
def test_what_cannot_be_served_is_refused_with_one_line(
    bundles: Path, tmp_path: Path, spoil: Any, settings: dict[str, str], message: str
) -> None:
    shutil.copytree(bundles, tmp_path / "models")
    if spoil is not None:
        spoil(tmp_path / "models/tiny")
    done = subprocess.run(
        command(free_port()),
        cwd=ROOT,
        env=environment(tmp_path / "models", tmp_path, **settings),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("macaron: error: ")
    assert message in line


def test_a_bundle_that_cannot_be_loaded_ends_the_server(bundles: Path, tmp_path: Path) -> None:
    shutil.copytree(bundles, tmp_path / "models")
    unloadable(tmp_path / "models/tiny")
    done = subprocess.run(
        command(free_port()),
        cwd=ROOT,
        env=environment(tmp_path / "models", tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("macaron: error: ")]
    assert "tiny" in line
