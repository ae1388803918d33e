"""Requests that are under way at the same time keep their records apart."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest
from starlette.types import ASGIApp, Message, Scope

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from tests.unit.serving.echo import POISON, EchoTranslator, wait_until

KEYS = {"one": "first-key-1234", "two": "second-key-5678"}


class Asking:
    """One request to an app that is called as a server calls it."""

    def __init__(self, request_id: str, key: str, body: dict[str, object]) -> None:
        self.request_id, self._sent = request_id, list[Message]()
        self._body = [json.dumps(body).encode()]
        headers = {
            "content-type": "application/json",
            "x-request-id": request_id,
            "x-api-key": KEYS[key],
        }
        self._scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/translate",
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }

    async def ask(self, app: ASGIApp) -> None:
        """Send the request and take its answer."""
        await app(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self._sent.append(message)

    @property
    def answer_id(self) -> str:
        """The id that the answer bears."""
        return dict(self._sent[0]["headers"])[b"x-request-id"].decode()


def translation(*texts: str, model: str, stream: bool = False) -> dict[str, object]:
    return {"q": texts, "source": "de", "target": "en", "model": model, "stream": stream}


def test_requests_at_the_same_time_never_mix_what_is_noted_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(api_keys=" ".join(KEYS.values()))
    translators = [EchoTranslator("first"), EchoTranslator("second")]
    registry = Registry(settings)
    registry.start(translators)
    app = create_app(registry, settings)
    long = "Ein langer Text, der auf einem anderen Thread gelesen wird. " * 20
    requests = [
        Asking("a", "one", translation("abc", model="first")),
        Asking("b", "two", translation("abcde", "ab", model="second")),
        Asking("c", "one", translation(long, "a", "b", model="second")),
        Asking("d", "two", translation("abcdefg", model="first", stream=True)),
        Asking("e", "one", translation(POISON, model="first")),
        Asking("f", "two", translation("a", model="none")),
    ]

    def open_gates() -> None:
        wait_until(lambda: sum(len(t.stepper.states) for t in translators) >= 2)
        for translator in translators:
            translator.stepper.gate.set()

    async def scenario() -> None:
        for translator in translators:
            translator.stepper.gate.clear()
        opener = threading.Thread(target=open_gates)
        opener.start()
        await asyncio.wait_for(asyncio.gather(*(request.ask(app) for request in requests)), 30)
        opener.join()

    try:
        with caplog.at_level(logging.INFO, "serving.server"):
            asyncio.run(scenario())
    finally:
        registry.close()
    assert [request.answer_id for request in requests] == list("abcdef")
    lines = [vars(record) for record in caplog.records if record.name.startswith("serving.server")]
    noted = {line["request_id"]: line for line in lines if line["message"] == "request"}
    assert sorted(noted) == list("abcdef")
    assert {i: (noted[i]["model"], noted[i]["texts"]) for i in "abcde"} == {
        "a": ("first", 1),
        "b": ("second", 2),
        "c": ("second", 3),
        "d": ("first", 1),
        "e": ("first", 1),
    }
    assert "model" not in noted["f"]
    assert noted["a"]["tokens"] == len("abc") + 1
    assert noted["b"]["tokens"] == len("abcde") + len("ab") + 2
    assert noted["d"]["tokens"] == len("abcdefg") + 1
    assert {i: line.get("error") for i, line in noted.items()} == dict.fromkeys("abcd") | {
        "e": "decoding_failed",
        "f": "unknown_model",
    }
    assert len({noted[i]["key"] for i in "ace"}) == len({noted[i]["key"] for i in "bdf"}) == 1
    assert noted["a"]["key"] != noted["b"]["key"]
    (warning,) = [line for line in lines if line["levelname"] == "WARNING"]
    assert warning["request_id"] == "e"
