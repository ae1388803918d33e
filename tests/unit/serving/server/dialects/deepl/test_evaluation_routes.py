"""DeepL's quality evaluations over HTTP, with a calibrated model that echoes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from serving.bundle.manifest import Calibration
from serving.checking.invariants import Fault, faults
from serving.errors import StoreUnavailableError
from serving.server.http.settings import Settings
from serving.server.models.served import StoredTranslator
from serving.server.work import evaluation
from serving.store.evaluations import StoredEvaluations
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, served

PATH = "/v1/quality-evaluations"
KEYS = ["the-first-key", "the-second-key"]
CALIBRATION = Calibration(
    event="made up",
    slope=1.0,
    intercept=2.0,
    data="none",
    pairs=1,
    held_out_pairs=1,
    held_out_rate=0.5,
    brier=0.1,
    expected_error=0.0,
)
LANGUAGES = {"source_lang": "DE", "target_lang": "EN-GB"}


def calibrated() -> EchoTranslator:
    echo = EchoTranslator()
    changes = {"calibration": CALIBRATION}
    echo.texts.manifest = echo.texts.manifest.model_copy(update=changes)
    return echo


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    file = tmp_path_factory.mktemp("store") / "store.db"
    settings = Settings(
        store=SecretStr(f"sqlite:///{file}"), api_keys=SecretStr(" ".join(KEYS)), max_texts=3
    )
    with served(calibrated(), settings=settings) as (client, _):
        client.headers["Authorization"] = f"DeepL-Auth-Key {KEYS[0]}"
        yield client


def evaluated(client: TestClient, *segments: tuple[str, str], **fields: Any) -> Any:
    told = [{"source": source, "target": target} for source, target in segments]
    return client.post(PATH, json={**LANGUAGES, "segments": told, **fields})


def test_a_model_is_not_loaded_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: list[bool] = []
    with served(calibrated()) as (client, registry):
        (model,) = registry.translators
        registry._put(StoredTranslator(model.manifest))

        def load(_: object) -> StoredTranslator:
            on_loop.append(asyncio._get_running_loop() is not None)
            return model

        monkeypatch.setattr(registry, "_load_stored", load)
        assert evaluated(client, ("abc", "abc")).status_code == 200
    assert on_loop == [False]


def test_a_given_translation_has_the_scores_that_the_model_gives_it() -> None:
    pairs = [("abc", "abc"), ("abc", "xyz"), ("abcdef", "a"), ("äöü", "äö")]
    echo = calibrated()
    tasks = {
        number: echo.texts.prepare(Request(text=source, target_prefix=target, given=True))
        for number, (source, target) in enumerate(pairs)
    }
    found = dict(echo._translate(tasks))
    for number, score in enumerate(echo.score(pairs)):
        translation = found[number]
        assert not isinstance(translation, Exception)
        (hypothesis,) = translation.hypotheses
        assert hypothesis.text == pairs[number][1]
        assert hypothesis.tokens == score.tokens
        assert hypothesis.token_scores == pytest.approx(score.token_scores)
        expected = echo.default_options.score(score.cumulative, len(score.tokens), ended=True)
        assert hypothesis.probability == pytest.approx(CALIBRATION.probability(expected))


def test_segments_are_scored_in_their_order_with_what_differs(client: TestClient) -> None:
    good, wrong, several = ("Wort 3", "Wort 3"), ("Wort 3", "Wort 4"), ("Ein. Zwei.", "Ein. Zwei.")
    answer = evaluated(client, good, wrong, several)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    first, second, third = body["segments"]
    assert body["status"] == "done"
    assert (first["segment_index"], first["source"], first["target"]) == (0, *good)
    assert second["segment_score"] < first["segment_score"] <= third["segment_score"] + 5
    assert first["errors"] == third["errors"] == []
    omission, addition = second["errors"]
    assert (omission["sub_type"], omission["source_spans"]) == (
        "Omission",
        [{"start": 5, "end": 6}],
    )
    assert (addition["sub_type"], addition["target_spans"]) == (
        "Addition",
        [{"start": 5, "end": 6}],
    )
    assert client.get(f"{PATH}/{body['job_id']}").json() == body
    other = {"Authorization": f"DeepL-Auth-Key {KEYS[1]}"}
    assert client.get(f"{PATH}/{body['job_id']}", headers=other).status_code == 404


@pytest.mark.parametrize(
    ("segments", "fields", "told"),
    [
        ([("a", "a"), (" ", "b")], {}, "segments[1]: source must not be blank"),
        ([("a", "")], {}, "segments[0]: target must not be blank"),
        ([("a", "a" * 300)], {}, "segments[0]: translation must have at most 256 pieces"),
        ([("a" * 300, "a")], {}, "segments[0]: text must have at most 255 pieces"),
        ([("a", "a")] * 4, {}, "at most 3 texts"),
        ([("a", "a")], {"glossary_id": "x"}, "'glossary_id' is not supported"),
        ([("a", "a")], {"source_lang": "FR"}, "Value for 'source_lang' not supported"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    client: TestClient, segments: list[tuple[str, str]], fields: dict[str, str], told: str
) -> None:
    answer = evaluated(client, *segments, **fields)
    assert answer.status_code in (400, 413)
    assert told in answer.json()["message"]


def test_the_native_answer_has_the_quality_of_each_text(client: TestClient) -> None:
    body = {"q": ["abc", "5"], "source": "de", "target": "en"}
    answer = client.post("/translate", json=body, headers={"X-API-Key": KEYS[0]}).json()
    first, second = answer["translations"]
    assert first["quality"] == first["hypotheses"][0]["probability"]
    assert "quality" not in second
    (segment,) = evaluated(client, ("abc", first["text"])).json()["segments"]
    assert segment["segment_score"] == pytest.approx(100 * first["quality"], abs=0.06)


def test_without_a_store_the_answer_has_all_and_a_bare_model_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    with served(calibrated()) as (client, _):
        body = evaluated(client, ("abc", "abc")).json()
        assert "job_id" not in body
        assert body["segments"][0]["segment_score"] > 50
        answer = client.get(f"{PATH}/{'0' * 32}")
        assert (answer.status_code, answer.json()["code"]) == (501, "no_store")
    with served() as (client, _):
        answer = evaluated(client, ("abc", "abc"))
        assert answer.status_code == 400
        assert "must be calibrated" in answer.json()["message"]


def test_long_texts_are_compared_beside_the_event_loop_and_have_a_hundred_faults_at_most(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def compared(*given: Any) -> list[Fault]:
        threads.add(threading.current_thread().name)
        return faults(*given)

    monkeypatch.setattr(evaluation, "faults", compared)
    sentences = [f"Wort {number}." for number in range(100, 300)]
    wrong = [f"Wort {number}." for number in range(500, 700)]
    answer = evaluated(client, (" ".join(sentences), " ".join(wrong)))
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["segments"][0]["errors"]) == 100
    assert all("AnyIO worker" in name for name in threads)


def test_what_is_evaluated_is_answered_without_the_store(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(*_: object) -> str:
        raise StoreUnavailableError("the store does not answer; try again later")

    monkeypatch.setattr(StoredEvaluations, "keep", keep)
    answer = evaluated(client, ("abc", "abc"))
    assert answer.status_code == 200, answer.text
    assert "job_id" not in answer.json()
    assert len(answer.json()["segments"]) == 1


def test_evaluations_count_as_usage(tmp_path: Path) -> None:
    settings = Settings(store=SecretStr(f"sqlite:///{tmp_path / 'store.db'}"))
    with served(calibrated(), settings=settings) as (client, _):
        before = client.get("/v2/usage").json()["character_count"]
        evaluated(client, ("abc", "abcd"))
        assert client.get("/v2/usage").json()["character_count"] - before == 7
