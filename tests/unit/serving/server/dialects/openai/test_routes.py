"""Where the messages of a chat are read."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from serving.errors import RequestError
from serving.server.access.gate import Gatekeeper
from serving.server.dialects.openai.routes import OPENAI
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings


@pytest.mark.parametrize(("messages", "on_loop"), [(1, True), (20_000, False)])
def test_many_messages_are_not_read_on_the_event_loop(messages: int, on_loop: bool) -> None:
    found: list[bool] = []

    def encode(_: object) -> list[int]:
        found.append(asyncio._get_running_loop() is not None)
        raise RequestError("it is only looked where this is")

    model = SimpleNamespace(name="m", prompts=SimpleNamespace(encode_chat=encode))
    settings = Settings()
    backend: Any = SimpleNamespace(
        registry=SimpleNamespace(choose_language_model=lambda _: model),
        settings=settings,
        gatekeeper=Gatekeeper(settings),
    )
    told = [{"role": "user", "content": ""}] * messages
    body = json.dumps({"model": "m", "messages": told}).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    head = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "headers": head}, receive)
    chat = next(route for route in OPENAI.routes if route.path == "/v1/chat/completions")
    context = RequestContext("id", client="somebody")
    with pytest.raises(RequestError, match="only looked"):
        asyncio.run(chat.endpoint(OPENAI.endpoints(backend), request, context))  # type: ignore[arg-type]
    assert found == [on_loop]
