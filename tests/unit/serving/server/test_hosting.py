"""What a worker without BentoML puts around the app: a span, a limit of time, start and end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from serving.server.hosting import Hosted

CALLER, PARENT = "ab" * 16, "cd" * 8


class Life:
    """Notes what is asked of it, in place of the models."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def start(self) -> None:
        self.noted.append("start")

    async def stop(self) -> None:
        self.noted.append("stop")


async def tells_its_span(scope: Scope, receive: Receive, send: Send) -> None:
    context = trace.get_current_span().get_span_context()
    text = f"{context.trace_id:032x} {context.span_id:016x} {context.is_valid}"
    await PlainTextResponse(text)(scope, receive, send)


def hosted(app: Any, timeout_s: float = 60, life: Any = None) -> TestClient:
    return TestClient(Hosted(app, life or Life(), timeout_s))


def test_a_request_goes_on_with_the_trace_of_its_caller() -> None:
    client = hosted(tells_its_span)
    header = {"traceparent": f"00-{CALLER}-{PARENT}-01"}
    spans = [client.get("/", headers=header).text.split() for _ in range(2)]
    assert [span[0] for span in spans] == [CALLER, CALLER]
    assert len({span[1] for span in spans} | {PARENT}) == 3


def test_a_request_without_a_trace_has_one_of_its_own() -> None:
    client = hosted(tells_its_span)
    spans = [
        client.get("/", headers=header).text.split()
        for header in ({}, {}, {"traceparent": "nonsense"})
    ]
    assert all(span[2] == "True" for span in spans)
    assert len({span[0] for span in spans}) == 3


def test_an_answer_that_does_not_begin_in_time_is_504() -> None:
    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(60)

    answer = hosted(waits, 0.05).get("/")
    assert answer.status_code == 504
    assert "0.05 seconds" in answer.json()["error"]


def test_an_answer_that_has_begun_may_take_longer() -> None:
    async def streams(scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> Any:
            yield "a"
            await asyncio.sleep(0.2)
            yield "b"

        await StreamingResponse(parts())(scope, receive, send)

    assert hosted(streams, 0.05).get("/").text == "ab"


def test_an_error_of_the_app_stays_its_own() -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="of something else"):
        hosted(fails).get("/")


def test_models_start_and_end_with_the_server() -> None:
    life = Life()
    with hosted(tells_its_span, life=life) as client:
        assert life.noted == ["start"]
        assert client.get("/").status_code == 200
    assert life.noted == ["start", "stop"]
