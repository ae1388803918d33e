"""Answers, options and errors in the shape of OpenAI's API."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from serving.errors import RequestError, ServingError, UnknownModelError
from serving.generation.choices import Generation, TokenScore
from serving.generation.ticket import GenerationDone
from serving.server.dialects.openai.answers import (
    CompletionAnswer,
    embedded,
    generation_options,
    in_wire_names,
    log_probs,
    prompts_of,
    render_error,
)
from serving.server.dialects.openai.wire import ChatMessage, CompletionRequest, EmbeddingRequest
from serving.server.http.settings import Settings
from serving.server.work.encoding import Read
from tests.unit.serving.generation.fake_generator import FakeGenerator


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        (None, [""]),
        ("a", ["a"]),
        ([1, 2], [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts_of_every_form_are_a_list(prompt: object, prompts: object) -> None:
    assert prompts_of(CompletionRequest.model_validate({"model": "m", "prompt": prompt})) == prompts


def test_options_have_our_names_and_all_of_top_k_is_none() -> None:
    body = CompletionRequest(model="m", top_k=-1, top_p=0.5, n=2)
    options = generation_options(body, {"max_length": 7}, {}, 1, Settings())
    assert (options.sampling_top_k, options.sampling_top_p) == (0, 0.5)
    assert (options.num_hypotheses, options.max_length) == (2, 7)


def test_an_error_of_an_option_names_it_as_the_body_does() -> None:
    ours = RequestError("max_length is bad", parameter="max_length")
    error = in_wire_names(ours, CompletionRequest(model="m"))
    assert (str(error), error.parameter) == ("max_tokens is bad", "max_tokens")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (UnknownModelError("no", parameter="model"), "invalid_request_error", "model_not_found"),
        (ServingError("no"), "server_error", ServingError.code),
    ],
)
def test_an_error_has_a_type_and_a_code(error: ServingError, kind: str, code: str) -> None:
    told = json.loads(bytes(render_error(error).body))["error"]
    assert told == {"message": "no", "type": kind, "param": error.parameter, "code": code}


def test_a_token_is_among_the_likeliest_and_the_first_has_no_figure() -> None:
    tokens = [
        TokenScore(token="a", token_id=1, log_prob=None, top=(), offset=0),
        TokenScore(token="b", token_id=2, log_prob=-1.5, top=(("c", -0.5),), offset=1),
    ]
    told = log_probs(tokens)
    assert told.token_logprobs == [None, -1.5]
    assert told.top_logprobs == [None, {"b": -1.5, "c": -0.5}]
    assert told.text_offset == [0, 1]


@pytest.mark.parametrize("shown", [{}, {"echo": True}, {"logprobs": 0}], ids=str)
def test_text_is_made_of_a_prompts_ids_only_where_it_shows(
    shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = FakeGenerator().prompts
    ids, decoded = texts.encode("abc"), list[list[int]]()
    decode = texts.tokenizer.decode

    def count(ids: list[int]) -> str:
        decoded.append(ids)
        return decode(ids)

    monkeypatch.setattr(texts.tokenizer, "decode", count)
    body = CompletionRequest(model="m", prompt=ids, **shown)
    answer = CompletionAnswer(body, texts, 1)
    output = Generation("de", (TokenScore(4, "d", 0, -1.0), TokenScore(5, "e", 1, -1.0)), "length")
    (choice,) = answer.whole([GenerationDone((output,), (), 3, 2)]).choices
    assert bool(decoded) is bool(shown)
    assert choice.text == ("abcde" if "echo" in shown else "de")
    if "logprobs" in shown:
        assert choice.logprobs is not None
        assert choice.logprobs.text_offset == [3, 4]


def test_a_vector_is_numbers_or_their_bytes() -> None:
    vector = np.array([[0.5, -2]], np.float32)
    read = Read(cast(Any, SimpleNamespace(name="m")), vector, tokens=3)
    numbers = embedded(EmbeddingRequest(model="m", input="a"), read)
    assert (numbers.data[0].embedding, numbers.usage.total_tokens) == ([0.5, -2], 3)
    packed = embedded(EmbeddingRequest(model="m", input="a", encoding_format="base64"), read)
    told = packed.data[0].embedding
    assert isinstance(told, str)
    assert np.frombuffer(base64.b64decode(told), "<f4").tolist() == [0.5, -2]


def test_parts_of_a_message_are_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ChatMessage.model_validate({"role": "user", "content": parts}).text == "ab"
    assert ChatMessage(role="assistant").text == ""
