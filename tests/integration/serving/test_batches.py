"""Batches by OpenAI's client over real models: each line's answer is what a request gets."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from tests.conftest import TinyEncoders, TinyLanguageModel
from tests.toy.language_checkpoints import write_llama
from tests.unit.serving.echo import wait_until

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "the cat"}], "max_tokens": 5}
PROMPT = {"model": "lm", "prompt": "the old man", "max_tokens": 8, "temperature": 0, "logprobs": 1}
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/completions": [
        PROMPT,
        {**PROMPT, "prompt": ["a dog", "the"], "n": 2, "temperature": 1, "seed": 7},
        {**PROMPT, "model": "none"},
        {**PROMPT, "max_tokens": 10**6},
    ],
    "/v1/chat/completions": [{**CHAT, "temperature": 0}, {**CHAT, "messages": []}],
    "/v1/embeddings": [
        {"model": "tiny-embedder", "input": ["the cat", "a dog sat"]},
        {"model": "tiny-embedder", "input": "the cat", "encoding_format": "base64"},
        {"model": "tiny-embedder", "input": ""},
    ],
}


@pytest.fixture(scope="module")
def http(
    tiny_language_model: TinyLanguageModel,
    tiny_encoders: TinyEncoders,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestClient]:
    from export.bundles.subject import Form
    from export.importing.bundle import import_bundle

    folder = tmp_path_factory.mktemp("batches")
    bundles = folder / "bundles"
    bundles.mkdir()
    (bundles / "lm").symlink_to(tiny_language_model.fp32)
    (bundles / "tiny-embedder").symlink_to(tiny_encoders.bundles / "tiny-embedder")
    write_llama(folder / "llama", max_position_embeddings=256)
    import_bundle(folder / "llama", bundles / "chat", Form("fp32"))
    store = f"sqlite:///{folder / 'store.db'}"
    settings = Settings(bundles=bundles, threads=1, store=store, files=str(folder / "files"))
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as http:
        yield http
    registry.close()


@pytest.mark.parametrize("endpoint", BODIES)
def test_a_line_gets_what_a_request_gets(http: TestClient, endpoint: Any) -> None:
    client = openai.OpenAI(
        base_url="http://testserver/v1", api_key="none", http_client=http, max_retries=0
    )
    bodies = BODIES[endpoint]
    lines = [
        {"custom_id": str(n), "method": "POST", "url": endpoint, "body": body}
        for n, body in enumerate(bodies)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("in.jsonl", io.BytesIO(content)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    wait_until(lambda: client.batches.retrieve(batch.id).status == "completed", 60)
    batch = client.batches.retrieve(batch.id)
    found: dict[int, Any] = {}
    for id in (batch.output_file_id, batch.error_file_id):
        assert id is not None
        for line in client.files.content(id).text.splitlines():
            told = json.loads(line)
            found[int(told["custom_id"])] = told["response"]
    statuses = []
    for number, body in enumerate(bodies):
        asked = http.post(endpoint, json=body)
        statuses.append(asked.status_code)
        assert found[number]["status_code"] == asked.status_code
        assert _lasting(found[number]["body"]) == _lasting(asked.json())
    assert batch.request_counts is not None
    assert batch.request_counts.completed == statuses.count(200)
    assert batch.request_counts.total == len(bodies)


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    """What does not differ from one answer to the next."""
    return {name: value for name, value in body.items() if name not in ("id", "created")}
