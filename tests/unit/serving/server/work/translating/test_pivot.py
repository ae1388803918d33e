"""Pairs that no model translates go through a third language, in every dialect."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.queue.limits import BatchLimits
from serving.queue.ticket import RequestTiming
from serving.server.http.settings import Settings
from serving.server.work.translating.job import JobResult, TextResult, TranslationJob
from serving.server.work.translating.pivot import joined_legs
from serving.translation.results import TextHypothesis
from serving.translation.texts import TextProcessor
from tests.unit.serving.echo import POISON, ByteTokenizer, EchoTranslator, served

BODY = {"q": "Bonjour, <b>toi</b>!", "source": "fr", "target": "de"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    translators = EchoTranslator("a", "fr", "en"), EchoTranslator("b", "en", "de")
    with served(*translators, settings=Settings(max_chars_per_minute=10_000)) as (client, _):
        yield client


def decoded(client: TestClient) -> dict[str, int]:
    """How many sentences each model has decoded."""
    lines = client.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("macaron_decoded_total")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in found}


def post(client: TestClient, **fields: Any) -> Any:
    return client.post("/translate", json=BODY | fields)


@pytest.mark.parametrize("q", ["Bonjour à tous", ["Un. Deux.", "", "7"]])
def test_two_models_translate_one_after_the_other(client: TestClient, q: Any) -> None:
    before = decoded(client)
    answer = post(client, q=q).json()
    after = decoded(client)
    assert answer["translatedText"] == q
    assert {name: after[name] - before.get(name, 0) for name in after} == (
        {"a": 1, "b": 1} if isinstance(q, str) else {"a": 2, "b": 2}
    )
    for translation in answer["translations"]:
        assert "pivot" in translation["warnings"]
        assert (translation["model"], translation["source"]) == ("b", "fr")


def test_how_likely_the_second_leg_is_good_is_not_reported() -> None:
    timing = RequestTiming(0.0, 0.0, 0.0, 1)
    hypothesis = TextHypothesis("Hallo", -0.1, -0.1, ("Hallo",), (-0.1,), True, probability=0.9)
    model: Any = None
    legs = [
        JobResult([TextResult("Hallo", [hypothesis], [], timing, model, source)])
        for source in ("fr", "en")
    ]
    job = TranslationJob(texts=["Bonjour"], source="fr", target="de")
    (found,) = joined_legs(job, legs).translations
    assert [each.probability for each in found.hypotheses] == [None]
    assert found.hypotheses[0].score == hypothesis.score


def test_what_one_model_translates_goes_through_no_other(client: TestClient) -> None:
    answer = post(client, source="en").json()
    assert answer["translations"][0]["warnings"] == []


def test_markup_terms_and_alternatives_are_those_of_the_target(client: TestClient) -> None:
    answer = post(client, format="html", alternatives=1, options={"beam_size": 3}).json()
    assert answer["translatedText"] == BODY["q"]
    assert len(answer["translations"][0]["hypotheses"]) == 2
    answer = post(client, q="abc", required=["xyz"], options={"max_length": 20}).json()
    assert "xyz" in answer["translatedText"]


class Shouting(EchoTranslator):
    """Its translations are in capitals."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        source, max_bytes = ByteTokenizer(), BatchLimits().max_cache_bytes
        self.texts = TextProcessor(self.manifest, source, LoudTokenizer(), self.stepper, max_bytes)


class LoudTokenizer(ByteTokenizer):
    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).upper()


def test_a_stream_tells_nothing_of_the_first_leg() -> None:
    with served(EchoTranslator("a", "fr", "en"), Shouting("b", "en", "de")) as (client, _):
        events = post(client, q="Bonjour à tous", stream=True).text
        assert "BONJOUR À TOUS" in events
        assert "Bonjour" not in events
        assert events.count('"pivot"') == 1
    with served(Shouting("a", "fr", "en"), EchoTranslator("b", "en", "de")) as (client, _):
        answer = post(client, q="Bonjour à tous").json()
        assert answer["translatedText"] == "BONJOUR À TOUS"


@pytest.mark.parametrize("stuck", [0, 1])
def test_both_legs_have_one_deadline(stuck: int) -> None:
    translators = EchoTranslator("a", "fr", "en"), EchoTranslator("b", "en", "de")
    with served(*translators) as (client, _):
        translators[stuck].stepper.gate.clear()
        began = time.monotonic()
        answer = post(client, q="Bonjour", timeout_s=0.4)
        assert time.monotonic() - began < 5
        assert answer.status_code == 504


def test_limits_are_for_what_clients_send() -> None:
    translators = EchoTranslator("a", "fr", "en"), EchoTranslator("b", "en", "de")
    with served(*translators, settings=Settings(max_text_chars=7)) as (client, _):
        assert post(client, q="Bonjour").json()["translatedText"] == "Bonjour"
        assert post(client, q="Bonjour!").status_code == 413


def test_other_dialects_go_the_same_way(client: TestClient) -> None:
    form = client.post("/translate", data={"q": "Salut", "source": "fr", "target": "de"})
    assert form.json()["translatedText"] == "Salut"
    body = {"text": ["Salut"], "source_lang": "FR", "target_lang": "DE"}
    found = client.post("/v2/translate", json=body).json()
    assert found["translations"][0]["text"] == "Salut"


def test_languages_list_what_can_be_had_by_way_of_another(client: TestClient) -> None:
    targets = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert targets == {"de": [], "en": ["de"], "fr": ["de", "en"]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"alignments": True}, "alignments needs a model from fr to de"),
        ({"glossary": [{"source": "a", "target": "b"}]}, "glossary needs a model from fr to de"),
        ({"options": {"beam_sizee": 3}}, "did you mean"),
        ({"options": {"beam_sizee": 3}, "stream": True}, "did you mean"),
        ({"required": [" "]}, "terms must not be blank"),
        ({"source": "de", "target": "fr"}, "fr is not supported"),
        ({"source": "de", "target": "en"}, "de is not supported"),
        ({"model": "b"}, "fr is not supported"),
    ],
)
def test_what_no_two_models_can_do_is_refused(
    client: TestClient, fields: dict[str, Any], said: str
) -> None:
    before = decoded(client)
    answer = post(client, **fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert decoded(client) == before  # nothing was begun


def test_an_error_of_the_first_leg_ends_the_request(client: TestClient) -> None:
    before = decoded(client)
    answer = post(client, q=POISON)
    assert (answer.status_code, answer.json()["code"]) == (500, "decoding_failed")
    assert decoded(client).get("b") == before.get("b")
