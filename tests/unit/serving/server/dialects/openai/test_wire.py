"""Bodies of OpenAI's dialect as clients write them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serving.server.dialects.openai.wire import CompletionRequest


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"max_tokens": 16.0}, {"max_tokens": 16}),
        ({"n": 2.0, "seed": 7.0}, {"n": 2, "seed": 7}),
        ({"logprobs": True}, {"logprobs": 1}),
        ({"logprobs": False}, {"logprobs": None}),
        ({"logprobs": 3}, {"logprobs": 3}),
        ({"logprobs": None}, {"logprobs": None}),
    ],
)
def test_whole_numbers_in_every_spelling(given: dict[str, Any], read: dict[str, Any]) -> None:
    body = CompletionRequest.model_validate({"model": "m", **given})
    assert {name: getattr(body, name) for name in read} == read


@pytest.mark.parametrize(
    "given",
    [{"max_tokens": 16.5}, {"max_tokens": "16"}, {"max_tokens": -1}, {"n": True}, {"logprobs": -1}],
)
def test_what_is_no_whole_number_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompletionRequest.model_validate({"model": "m", **given})
