"""Request ids and log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from starlette.testclient import TestClient

from serving.server.http.logs import configure_logs
from serving.server.http.settings import Settings
from tests.unit.serving.echo import POISON, served

GOOD = {"q": "Ein Geheimnis", "source": "de", "target": "en"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served() as (client, _):
        yield client


Start = Callable[[Settings], io.StringIO]


@pytest.fixture
def logging_as_worker() -> Iterator[Start]:
    """Makes this process log as a worker does; gives what it writes."""
    root, serving = logging.getLogger(), logging.getLogger("serving")
    before = root.handlers[:], serving.level

    def start(settings: Settings) -> io.StringIO:
        configure_logs(settings)
        (handler,) = root.handlers
        assert isinstance(handler, logging.StreamHandler)
        stream = io.StringIO()
        handler.setStream(stream)
        return stream

    yield start
    root.handlers[:] = before[0]
    serving.setLevel(before[1])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("given", ["abc-123", "7e6f2c5a-60f2-4d0e-b9a0-2f1b7d9a5f3e", "a" * 128])
def test_a_sane_request_id_is_taken_over(client: TestClient, given: str) -> None:
    response = client.get("/livez", headers={"X-Request-ID": given})
    assert response.headers["X-Request-ID"] == given


@pytest.mark.parametrize("given", [None, "", "a" * 129, "two words", 'q"', "{}", "\xe9"])
def test_another_is_made_up_anew(client: TestClient, given: str | None) -> None:
    headers = {} if given is None else {"X-Request-ID": given.encode("latin-1")}
    made = [client.get("/livez", headers=headers).headers["X-Request-ID"] for _ in range(2)]
    assert all(len(one) == 32 for one in made)
    assert made[0] != made[1]


def test_refusals_have_an_id_too(client: TestClient) -> None:
    assert client.get("/nowhere").headers["X-Request-ID"]
    assert client.post("/translate", content=b"{").headers["X-Request-ID"]


def test_a_json_line_tells_all_but_the_text(client: TestClient, logging_as_worker: Start) -> None:
    stdout = logging_as_worker(Settings())
    client.post("/translate", json=GOOD, headers={"X-Request-ID": "mine"})
    (line,) = lines(stdout)
    assert (line["level"], line["message"], line["request_id"]) == ("INFO", "request", "mine")
    assert (line["method"], line["route"], line["status"]) == ("POST", "/translate", 200)
    assert (line["model"], line["texts"], line["tokens"]) == ("echo-de-en", 1, 14)
    assert 0 < line["decode_ms"] <= line["duration_ms"]
    assert line["queue_ms"] >= 0
    assert line["time"].endswith("Z")
    assert "Geheimnis" not in stdout.getvalue()


def test_errors_name_their_code_and_every_line_has_the_id(
    client: TestClient, logging_as_worker: Start
) -> None:
    stdout = logging_as_worker(Settings())
    client.post("/translate", json={**GOOD, "q": POISON}, headers={"X-Request-ID": "mine"})
    warning, request = lines(stdout)
    assert warning["level"] == "WARNING"
    assert (request["status"], request["error"]) == (500, "decoding_failed")
    assert warning["request_id"] == request["request_id"] == "mine"


def test_probes_are_quiet_and_paths_are_templates(
    client: TestClient, logging_as_worker: Start
) -> None:
    stdout = logging_as_worker(Settings())
    for path in ("/livez", "/readyz", "/metrics", "/secret-path"):
        client.get(path)
    (line,) = lines(stdout)
    assert (line["route"], line["status"]) == ("none", 404)
    assert "secret" not in stdout.getvalue()


def test_level_and_format_are_settings(client: TestClient, logging_as_worker: Start) -> None:
    stdout = logging_as_worker(Settings(log_level="debug", log_format="text"))
    client.get("/livez", headers={"X-Request-ID": "mine"})
    assert " DEBUG request method=GET route=/livez status=200" in stdout.getvalue()
    assert "request_id=mine" in stdout.getvalue()
    stdout = logging_as_worker(Settings(log_level="error"))
    client.get("/languages")
    assert stdout.getvalue() == ""


def test_lines_name_the_trace_they_belong_to(logging_as_worker: Start) -> None:
    stdout = logging_as_worker(Settings())
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)):
        logging.getLogger("serving.test").info("inside")
    logging.getLogger("serving.test").info("outside")
    inside, outside = lines(stdout)
    assert inside["trace_id"] == format(0xABC, "032x")
    assert "trace_id" not in outside
