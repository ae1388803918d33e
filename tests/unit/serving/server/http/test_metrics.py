"""Metrics: what is counted, and that labels stay bounded."""

from __future__ import annotations

import random
import string
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from tests.unit.serving.echo import POISON, EchoTranslator, served, wait_until

GOOD = {"q": "Hallo", "source": "de", "target": "en"}


@pytest.fixture
def translator() -> EchoTranslator:
    return EchoTranslator()


@pytest.fixture
def server(translator: EchoTranslator) -> Iterator[tuple[TestClient, Registry]]:
    with served(translator, settings=Settings(max_queue=4, max_texts=4)) as found:
        yield found


def scrape(client: TestClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value(client: TestClient, name: str, **labels: str) -> float:
    return scrape(client).get((name, tuple(sorted(labels.items()))), 0.0)


def test_a_translation_is_counted_once_everywhere(server: tuple[TestClient, Registry]) -> None:
    client, _ = server
    assert client.post("/translate", json={**GOOD, "q": ["abc", "a"]}).status_code == 200
    model = {"model": "echo-de-en"}
    request = {"route": "/translate", "status": "200", **model}
    assert value(client, "macaron_http_requests_total", **request) == 1
    assert value(client, "macaron_http_request_seconds_count", route="/translate") == 1
    assert value(client, "macaron_decoded_total", **model) == 2
    assert value(client, "macaron_generated_tokens_total", **model) == 3 + 1 + 2  # two ends
    assert value(client, "macaron_queue_wait_seconds_count", **model) == 2
    assert value(client, "macaron_batch_size_sum", **model) == 2
    # Sources of 4 and 2 tokens, ends included, in a batch of 2 x 4.
    assert value(client, "macaron_batch_tokens_sum", **model) == 8
    assert value(client, "macaron_batch_padding_ratio_sum", **model) == pytest.approx(2 / 8)
    assert value(client, "macaron_rows", **model) == 0
    assert value(client, "macaron_queue_depth", **model) == 0
    assert value(client, "macaron_ready") == 1
    info = {"task": "translate", "family": "macaron", "precision": "fp32", **model}
    assert value(client, "macaron_model_info", **info) == 1
    assert value(client, "macaron_http_requests_in_progress") == 1  # the scrape itself


def test_process_figures(server: tuple[TestClient, Registry]) -> None:
    client, _ = server
    assert value(client, "process_resident_memory_bytes") > 2**20
    assert value(client, "process_open_fds") > 2
    assert value(client, "process_threads") >= 2


def test_what_waits_and_what_is_decoded_shows(
    server: tuple[TestClient, Registry], translator: EchoTranslator
) -> None:
    client, _ = server
    translator.stepper.gate.clear()
    answers = [
        threading.Thread(target=client.post, args=("/translate",), kwargs={"json": GOOD | {"q": q}})
        for q in ("eins", "eins", "zwei")
    ]
    answers[0].start()
    wait_until(lambda: value(client, "macaron_rows", model="echo-de-en") == 1)
    for answer in answers[1:]:
        answer.start()
    wait_until(lambda: value(client, "macaron_queue_depth", model="echo-de-en") == 1)
    wait_until(lambda: value(client, "macaron_coalesced_total", model="echo-de-en") == 1)
    translator.stepper.gate.set()
    for answer in answers:
        answer.join()
    # An answer is on its way before the thread that decodes has put its row away.
    wait_until(lambda: value(client, "macaron_rows", model="echo-de-en") == 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({**GOOD, "q": "x" * 20_001}, "too_long"),
        ({**GOOD, "options": {"beam": 1}}, "invalid_option"),
        ({**GOOD, "model": "none"}, "unknown_model"),
        ({**GOOD, "q": POISON}, "decoding_failed"),
        ({**GOOD, "timeout_s": 1e-9}, "deadline_exceeded"),
    ],
)
def test_errors_are_counted_by_their_code(
    server: tuple[TestClient, Registry], body: dict[str, object], reason: str
) -> None:
    client, _ = server
    assert client.post("/translate", json=body).status_code >= 400
    assert value(client, "macaron_errors_total", reason=reason) == 1


def test_an_error_within_a_stream_is_counted(server: tuple[TestClient, Registry]) -> None:
    client, _ = server
    answer = client.post("/translate", json={**GOOD, "q": POISON, "stream": True})
    assert "event: error" in answer.text
    assert value(client, "macaron_errors_total", reason="decoding_failed") == 1


def test_labels_do_not_grow_with_what_clients_send(server: tuple[TestClient, Registry]) -> None:
    client, _ = server
    rng = random.Random(0)
    client.get("/nowhere")
    client.request("BREW", "/translate")
    client.post("/translate", json={**GOOD, "model": "a"})
    client.get("/web/none.js")
    client.get("/v1/models/none")
    scrape(client)
    before = set(scrape(client))
    for _ in range(300):
        name = "".join(rng.choices(string.ascii_letters, k=12))
        client.get(f"/{name}")
        client.get(f"/web/{name}")
        client.get(f"/v1/models/{name}")
        client.request(name.upper(), "/translate")
        client.post("/translate", json={**GOOD, "model": name})
    assert set(scrape(client)) == before
