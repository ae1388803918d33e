"""A figure that the model changes, through HTTP in every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from tests.unit.serving.echo import EchoModel, EchoStepper, EchoTranslator, served
from tests.unit.serving.search.fake_stepper import Slots

SEVEN, NINE = (4 + ord(digit) for digit in "79")
TEXT, WRONG = "Es sind 97 Hunde.", "Es sind 77 Hunde."


class Miscounts(EchoModel):
    """An echo that takes each 9 for a 7, though the 9 is nearly as likely."""

    def logits(self, source: tuple[int, ...], slots: Slots) -> NDArray[np.float32]:
        """[V]"""
        logits = super().logits(source, slots)
        if logits.argmax() == NINE:
            logits[SEVEN], logits[NINE] = logits[NINE], logits[NINE] - 1
        return logits


class NeverNine(Miscounts):
    """An echo that cannot write a 9."""

    def logits(self, source: tuple[int, ...], slots: Slots) -> NDArray[np.float32]:
        """[V]"""
        logits = super().logits(source, slots)
        logits[NINE] = -np.inf
        return logits


def translator(model: type[EchoModel]) -> EchoTranslator:
    stepper = EchoStepper()
    stepper.model = model(vocab_size=4 + 256)
    return EchoTranslator(stepper=stepper)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with served(translator(Miscounts)) as (client, _):
        yield client


def ask(client: TestClient, **fields: Any) -> Any:
    body = {"q": TEXT, "source": "de", "target": "en", **fields}
    response = client.post("/translate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_answer_has_the_right_figure_and_says_what_was_wrong(client: TestClient) -> None:
    answer = ask(client)

    assert answer["translatedText"] == TEXT
    (found,) = answer["translations"]
    assert found["text"] == TEXT
    assert {(each["kind"], each["what"], each["by"]) for each in found["repaired"]} == {
        ("figures", "97", "hypothesis"),
        ("figures", "77", "hypothesis"),
    }
    assert found["warnings"] == []


def test_metrics_count_what_was_put_right(client: TestClient) -> None:
    ask(client)

    labels = 'by="hypothesis",kind="figures",model="echo-de-en"'
    assert f"macaron_repairs_total{{{labels}}} 2.0" in client.get("/metrics").text


def test_without_verify_the_figure_stays_wrong(client: TestClient) -> None:
    (found,) = ask(client, options={"verify": False})["translations"]

    assert found["text"] == WRONG
    assert found["repaired"] == []
    assert "macaron_repairs_total{" not in client.get("/metrics").text


def test_a_stream_shows_no_figure_that_is_taken_back(client: TestClient) -> None:
    body = {"q": TEXT, "source": "de", "target": "en", "stream": True}

    text = client.post("/translate", json=body).text

    assert "77 Hunde" not in text
    last = text.strip().rpartition("data: ")[2]
    assert json.loads(last)["translations"][0]["text"] == TEXT


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/translate", {"text": [TEXT], "source_lang": "DE", "target_lang": "EN"}),
        ("/translate", {"q": [TEXT], "source": "de", "target": "en", "format": "text"}),
        ("/translate", {"q": f"<p>{TEXT}</p>", "source": "de", "target": "en", "format": "html"}),
    ],
)
def test_the_figure_is_right_in_every_dialect(client: TestClient, path: str, body: object) -> None:
    response = client.post(path, json=body)

    assert response.status_code == 200, response.text
    assert TEXT in response.text
    assert WRONG not in response.text


def test_what_could_not_be_put_right_is_a_warning() -> None:
    with served(translator(NeverNine)) as (client, _):
        (found,) = ask(client, q="Nur 5 oder 9 Hunde und 9.")["translations"]

    assert found["warnings"] == ["figures"]
    assert found["repaired"] == []
