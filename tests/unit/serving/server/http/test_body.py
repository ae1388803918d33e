"""Refusals of a body name the field that is wrong, wherever it lies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.serving.echo import EchoTranslator, served


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served(EchoTranslator()) as (client, _):
        yield client


def chat(*messages: Any) -> dict[str, Any]:
    return {"model": "x", "messages": list(messages)}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/chat/completions", chat({"role": "wizard", "content": "a"}),
         "messages[0].role must be 'system', 'developer', 'user' or 'assistant', got 'wizard'"),
        ("/v1/chat/completions", chat({"content": "a"}), "messages[0].role is missing"),
        ("/v1/chat/completions", chat({"role": "user"}, {"role": "user", "content": 5}),
         "messages[1].content must be a valid string or a valid list, got 5"),
        ("/v1/chat/completions",
         chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
         "messages[0].content[0].type must be 'text', got 'image_url'"),
        ("/v1/chat/completions",
         chat({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}),
         "messages[0].content[1].text is missing"),
        ("/v1/chat/completions", chat("a"), "messages[0] must be an object, got 'a'"),
        ("/v1/chat/completions", chat(),
         "messages must have at least one item, got an empty list"),
        ("/v1/chat/completions",
         {**chat({"role": "user", "content": "a"}), "stream_options": {"include_usage": "x"}},
         "stream_options.include_usage must be a valid boolean, got 'x'"),
        ("/v1/completions", {"model": "x", "prompt": {"a": 1}},
         "prompt must be a valid string or a valid list, got an object"),
        ("/v1/embeddings", {"model": "x", "input": ["a", None]},
         "input[1] must be a valid string, got null"),
        ("/v1/embeddings", {"model": "x", "input": [None, "a"]},
         "input[0] must be a valid string or a valid integer or a valid list, got null"),
        ("/v1/completions", {"model": "x", "prompt": [1, "a"]},
         "prompt[1] must be a valid integer, got 'a'"),
        ("/v1/completions", {"model": "x", "prompt": [[5], []]},
         "prompt[1] must have at least one item, got an empty list"),
        ("/v1/completions", {"model": "x", "prompt": ["a", [5, "x"]]},
         "prompt[1] must be a valid string, got a list"),
        ("/v1/completions", {"model": "x", "prompt": [[5, "x"], [6]]},
         "prompt[0][1] must be a valid integer, got 'x'"),
        ("/rerank", {"query": 5, "texts": ["a"]}, "query must be a valid string, got 5"),
        ("/rerank", {"query": "a", "texts": ["a", 5]}, "texts[1] must be a valid string, got 5"),
        ("/rerank", {"texts": ["a"]}, "Invalid request: missing query parameter"),
        ("/rerank", {"query": "a"}, "either texts or documents must be given, and not both"),
        ("/rerank", {"query": "a", "texts": ["a"], "documents": ["a"]},
         "either texts or documents must be given, and not both"),
        ("/rerank", {"query": "a", "documents": ["a", {"title": "a"}]},
         "documents[1].text is missing"),
        ("/rerank", {"query": "a", "documents": ["a"], "top_n": 0},
         "top_n must be greater than or equal to 1, got 0"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"},
         "truncation_direction must be 'right' or 'Right', got 'left'"),
        ("/rerank", {"query": "a", "texts": ["a"], "prompt_name": "query"},
         "prompt_name must be left out, got 'query'"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]},
                         "parameters": {"truncation_direction": "left"}},
         "parameters.truncation_direction must be 'right' or 'Right', got 'left'"),
        ("/similarity", {"inputs": {"source_sentence": 5, "sentences": ["a"]}},
         "inputs.source_sentence must be a valid string, got 5"),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, "inputs.sentences is missing"),
        ("/predict", {"inputs": [["a", 5]]}, "inputs[0][1] must be a valid string, got 5"),
        ("/translate", {"q": ["a", 5], "source": "de", "target": "en"},
         "q[1] must be a valid string, got 5"),
        ("/v2/translate", {"text": ["a", 5], "target_lang": "EN"},
         "text[1] must be a valid string, got 5"),
    ],
)  # fmt: skip
def test_the_field_is_named(client: TestClient, path: str, body: Any, message: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    error = answer.json().get("error") or answer.json()["message"]
    assert (error["message"] if isinstance(error, dict) else error) == message
    if path.startswith("/v1/"):
        assert error["param"] == message.split(" ")[0]
