"""Pairs, vectors and errors in the shape of text-embeddings-inference."""

from __future__ import annotations

import json

import numpy as np
import pytest

from serving.errors import (
    NotReadyError,
    OverloadedError,
    RateLimitedError,
    RequestError,
    ServingError,
)
from serving.server.dialects.tei.answers import of_length_one, pairs_of, render_error
from serving.server.dialects.tei.wire import PredictRequest


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ("a", ["a"]),
        (["a"], ["a"]),
        (["a", "b"], [("a", "b")]),
        ([["a"], ["b", "c"]], ["a", ("b", "c")]),
    ],
)
def test_inputs_are_texts_or_pairs(inputs: object, found: object) -> None:
    assert pairs_of(PredictRequest.model_validate({"inputs": inputs})) == found


def test_three_texts_are_no_pair_and_the_message_says_which() -> None:
    body = PredictRequest(inputs=[["a"], ["a", "b", "c"]])
    with pytest.raises(RequestError, match=r"inputs\[1\] must be one text or two, got 3"):
        pairs_of(body)


def test_vectors_have_length_one_and_those_of_zeros_stay() -> None:
    found = of_length_one(np.array([[3, 4], [0, 0]], np.float32))
    assert found.tolist() == [pytest.approx([0.6, 0.8]), [0, 0]]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestError("no"), "Validation"),
        (NotReadyError("no"), "Unhealthy"),
        (OverloadedError("no"), "Overloaded"),
        (RateLimitedError("no"), "Overloaded"),
        (ServingError("no"), "Backend"),
    ],
)
def test_errors_are_of_four_kinds(error: ServingError, kind: str) -> None:
    answer = render_error(error)
    assert answer.status_code == error.status
    assert json.loads(bytes(answer.body)) == {"error": "no", "error_type": kind}
