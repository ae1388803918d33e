"""Translations that begin as those of sentences that are like theirs, by the shipped bundles and
over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.text.memory.lookup import memory_of
from serving.text.memory.segments import Segment
from serving.translation.translator import Translator, Wishes
from tests.integration.demo import MODELS

SEGMENTS = [
    Segment("Das Haus ist rot.", "The building is red."),
    Segment("Ich habe den Brief gestern geschrieben.", "I wrote the letter yesterday."),
    Segment("Auf Seite 3 steht ein langer Satz.", "There is a lengthy clause on page 3."),
]


@pytest.fixture(scope="module")
def german() -> Translator:
    return Translator(MODELS / "macaron-de-en", threads=1)


@pytest.fixture(scope="module")
def english() -> Translator:
    return Translator(MODELS / "macaron-en-de", threads=1)


@pytest.fixture(scope="module")
def client(
    german: Translator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestClient, str]]:
    path = tmp_path_factory.mktemp("store") / "store.db"
    settings = Settings(store=SecretStr(f"sqlite:///{path}"))
    registry = Registry(settings)
    registry.start([german])
    try:
        with TestClient(create_app(registry, settings)) as client:
            segments = [{"source": s, "target": t} for s, t in SEGMENTS]
            new = {"name": "m", "source": "de", "target": "en", "segments": segments}
            yield client, client.post("/memories", json=new).json()["id"]
    finally:
        registry.close()


def drafted(translator: Translator, text: str, segment: Segment) -> str:
    languages = translator.direction(None, None)
    memory = replace(memory_of([segment], languages, 60), as_prefix=True)
    [found] = translator.translate(text, wishes=Wishes(memory=memory))
    return found.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Das Haus ist blau.", "The building is blue."),
        ("Das Haus ist sehr rot.", "The building is very red."),  # more words than the segment
        ("Das Haus ist rot.", "The building is red."),
        ("Der Garten ist rot.", "The garden is red."),  # nothing in common at the beginning
    ],
)
def test_a_translation_begins_as_that_of_the_same_words(
    german: Translator, text: str, expected: str
) -> None:
    assert drafted(german, text, SEGMENTS[0]) == expected


def test_the_word_that_changes_is_translated_anew_wherever_it_stands(german: Translator) -> None:
    found = drafted(german, "Ich habe den Brief gestern gelesen.", SEGMENTS[1])
    assert found == "I read the letter yesterday."


def test_what_does_not_go_on_from_a_beginning_is_cut_off_from_it(english: Translator) -> None:
    segment = Segment("I bought a new lamp yesterday.", "Ich habe gestern eine neue Lampe gekauft.")
    found = drafted(english, "I bought a new car yesterday.", segment)
    assert found == "Ich habe gestern ein neues Auto gekauft."


def asked(client: tuple[TestClient, str], q: Any, **fields: Any) -> Any:
    body = {"q": q, "source": "de", "target": "en", "memory_id": client[1], **fields}
    answer = client[0].post("/translate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_request_says_how_what_is_alike_is_used(client: tuple[TestClient, str]) -> None:
    text = "Das Haus ist blau. Das Haus ist rot. Auf Seite 7 steht ein kurzer Satz. Es schneit."
    given = asked(client, text)["translations"][0]["origins"]
    assert [each["origin"] for each in given] == ["memory", "memory", "memory", "model"]
    answer = asked(client, text, memory_fuzzy="prefix")
    assert answer["translatedText"].startswith("The building is blue. The building is red. There")
    assert "page 7" in answer["translatedText"]
    first, second, third, fourth = answer["translations"][0]["origins"]
    assert (first["origin"], first["prefix"]) == ("prefix", "The building is")
    assert 75 < first["score"] < 100
    assert first["segment"] == "Das Haus ist rot."
    assert second == {**second, "origin": "memory", "score": 100.0}
    assert "prefix" not in second
    assert third["origin"] in ("prefix", "model")
    assert third["segment"] == SEGMENTS[2].source
    assert fourth == {"sentence": "Es schneit.", "origin": "model"}


def test_streams_markup_and_several_hypotheses_go_with_it(client: tuple[TestClient, str]) -> None:
    html = "<p>Das Haus ist <b>blau</b>.</p>"
    found = asked(client, html, format="html", memory_fuzzy="prefix", alternatives=2)
    assert found["translatedText"] == "<p>The building is <b>blue</b>.</p>"
    assert all(each.startswith("<p>The building is") for each in found["alternatives"])
    body = {"q": "Das Haus ist blau.", "source": "de", "target": "en", "memory_id": client[1]}
    body |= {"memory_fuzzy": "prefix", "stream": True}
    events = client[0].post("/translate", json=body).text
    assert '"translatedText":"The building is blue."' in events
    refused = client[0].post("/translate", json={**body, "memory_fuzzy": "perhaps"})
    assert refused.status_code == 400
    assert "memory_fuzzy" in refused.json()["error"]


def test_an_answer_that_is_kept_is_that_of_its_draft(client: tuple[TestClient, str]) -> None:
    text = "Das Haus ist grün."
    for _ in range(2):
        assert asked(client, text)["translatedText"] == "The building is red."
        begun = asked(client, text, memory_fuzzy="prefix")
        assert begun["translatedText"] == "The building is green."
        assert begun["translations"][0]["origins"][0]["prefix"] == "The building is"
        body = {"q": text, "source": "de", "target": "en"}
        assert client[0].post("/translate", json=body).json()["translatedText"] != ""
        assert "building" not in client[0].post("/translate", json=body).json()["translatedText"]
