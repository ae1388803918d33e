"""What the native routes are answered from: jobs and inputs of a body."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import RequestError
from serving.server.dialects.native.answers import inputs_of, job_of
from serving.server.dialects.native.wire import ClassifyRequest, TranslateRequest
from serving.text.terms import NO_TERMS


def body(**fields: Any) -> TranslateRequest:
    return TranslateRequest.model_validate({"source": "de", "target": "en", **fields})


def test_a_job_has_a_list_of_texts_and_one_prefix_for_each() -> None:
    assert job_of(body(q="a", target_prefix="x")).texts == ["a"]
    assert job_of(body(q=["a", "b"], target_prefix="x")).target_prefixes == ["x", "x"]
    assert job_of(body(q=["a", "b"], target_prefix=["x", ""])).target_prefixes == ["x", ""]


def test_terms_of_a_job() -> None:
    assert job_of(body(q="a")).terms is NO_TERMS
    glossary = [{"source": "Haus", "target": "house"}]
    assert job_of(body(q="a", glossary=glossary)).terms.glossary == (("Haus", "house"),)


@pytest.mark.parametrize("q", ["a", ["a"]])
def test_prefixes_that_do_not_fit_the_texts_are_refused(q: str | list[str]) -> None:
    with pytest.raises(RequestError, match="target_prefix must be a string") as caught:
        job_of(body(q=q, target_prefix=["x", "y"]))
    assert caught.value.parameter == "target_prefix"


def test_a_second_text_makes_a_pair_of_each() -> None:
    assert inputs_of(ClassifyRequest(q="a")) == ["a"]
    assert inputs_of(ClassifyRequest(q="a", pair="b")) == [("a", "b")]
    assert inputs_of(ClassifyRequest(q=["a", "c"], pair=["b", "d"])) == [("a", "b"), ("c", "d")]
    with pytest.raises(RequestError, match="as many texts as q, 2, got 1"):
        inputs_of(ClassifyRequest(q=["a", "c"], pair="b"))
