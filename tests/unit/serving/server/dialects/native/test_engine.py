"""Links, terms, alternatives at a position and streams over HTTP, with a model that echoes."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.errors import RequestError
from serving.search.beams.constraints import Constraints
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.work.translating.job import JobResult, TextPartial, TranslationJob
from serving.server.work.translating.jobs import Jobs
from serving.text.terms import TermReader, Terms
from tests.unit.serving.echo import POISON, EchoTranslator, served, wait_until


def ask(client: TestClient, q: object, **fields: Any) -> Any:
    response = client.post("/translate", json={"q": q, "source": "de", "target": "en", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def refused(client: TestClient, status: int, **fields: Any) -> str:
    body = {"q": "Hallo", "source": "de", "target": "en", **fields}
    response = client.post("/translate", json=body)
    assert response.status_code == status, response.text
    return str(response.json()["error"])


def streamed(client: TestClient, q: object, **fields: Any) -> list[tuple[str, Any]]:
    """Events and their data."""
    body = {"q": q, "source": "de", "target": "en", "stream": True, **fields}
    response = client.post("/translate", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_links_are_of_the_whole_text() -> None:
    text = "Ein Wort. Noch ein Satz."
    with served() as (client, _):
        (plain,) = ask(client, text)["translations"][0]["hypotheses"]
        (hypothesis,) = ask(client, text, alignments=True)["translations"][0]["hypotheses"]
    assert "alignment" not in plain
    assert hypothesis["text"] == text
    links = hypothesis["alignment"]
    assert links
    targets = [tuple(link["target"]) for link in links]
    assert targets == sorted(set(targets))
    for link in links:
        assert 0 < link["probability"] <= 1
        words = [side[slice(*link[key])] for side, key in ((text, "source"), (text, "target"))]
        assert all(word.isalpha() or word == "." for word in words)
    assert any(link["source"][0] > 10 for link in links)


def test_terms() -> None:
    glossary = [{"source": "hallo", "target": "QQ"}, {"source": "Welt", "target": "WW"}]
    with served() as (client, _):
        answer = ask(client, ["Hallo", "Hall o"], glossary=glossary)
        assert "QQ" in answer["translatedText"][0]
        assert answer["translatedText"][1] == "Hall o"
        assert "xyz" in ask(client, "Hallo", required=["xyz"])["translatedText"]
        assert "a" not in ask(client, "Hallo", forbidden=["a"])["translatedText"]
        short = ask(client, "Hallo", required=["xyz"], options={"max_length": 2})
        assert short["translations"][0]["warnings"] == ["max_length", "constraints"]
        assert "of one sentence, got 2" in refused(
            client, 400, q="Ein Wort. Noch ein Satz.", required=["x"]
        )
        assert "at most 100 terms" in refused(client, 413, forbidden=["x"] * 101)
        assert "at most 100 characters" in refused(client, 413, required=["x" * 101])
        for fields in ({"required": [" "]}, {"glossary": [{"source": "", "target": "x"}]}):
            assert "terms must not be blank" in refused(client, 400, **fields)


def test_alternatives_at_a_position() -> None:
    options = {"return_alternatives": True, "num_hypotheses": 2, "beam_size": 1}
    with served() as (client, _):
        answer = ask(client, "abcdef", target_prefix="xy", options=options)
        error = refused(client, 400, q="Ein Wort. Noch ein Satz.", options=options)
    texts = [hypothesis["text"] for hypothesis in answer["translations"][0]["hypotheses"]]
    assert texts == ["xycdef", "xyddef"]
    assert "return_alternatives needs a text of one sentence, got 2" in error


def test_alternatives_count_all_their_beams() -> None:
    settings = Settings(max_request_beams=16)
    options = {"return_alternatives": True, "num_hypotheses": 5, "beam_size": 4}
    with served(settings=settings) as (client, _):
        assert "x beam_size must be at most 16" in refused(client, 413, options=options)
        ask(client, "abc", options={**options, "num_hypotheses": 4})


def test_the_time_in_the_encoder_is_distinguished() -> None:
    with served() as (client, _):
        timing = ask(client, "Hallo")["translations"][0]["timing"]
        blank = ask(client, "")["translations"][0]["timing"]
    assert set(timing) == {"queue_ms", "encode_ms", "decode_ms", "batch_size"}
    assert 0 < timing["encode_ms"] < timing["encode_ms"] + timing["decode_ms"]
    assert blank["encode_ms"] == 0


@pytest.mark.parametrize(
    "q", ["Ein Satz.", "Ein Satz. Und noch einer.\n\nEnde.", ["Erster.", "", "Der zweite. Noch."]]
)
def test_a_stream_ends_with_the_whole_answer(q: str | list[str]) -> None:
    with served() as (client, _):
        *partials, (name, whole) = streamed(client, q)
        plain = ask(client, q)
    assert name == "done"
    for answer in (whole, plain):
        for translation in answer["translations"]:
            del translation["timing"]
    assert whole == plain
    assert {name for name, _ in partials} == {"partial"}
    finals = [translation["text"] for translation in whole["translations"]]
    for index, final in enumerate(finals):
        texts = [data["text"] for _, data in partials if data["index"] == index]
        assert texts or not final
        assert all(final.startswith(text) for text in texts)
        for before, after in itertools.pairwise(texts):
            assert after.startswith(before)
            assert after != before
    assert partials  # how many depends on how fast they are taken


def test_markup_comes_at_the_end() -> None:
    with served() as (client, _):
        events = streamed(client, "Ein <b>Satz</b> hier.", format="html")
    assert [name for name, _ in events] == ["done"]


def test_forbidden_terms_are_not_read_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: list[bool] = []
    constraints = TermReader.constraints

    def note(reader: TermReader, text: str, terms: Terms) -> Constraints | None:
        on_loop.append(asyncio._get_running_loop() is not None)
        return constraints(reader, text, terms)

    monkeypatch.setattr(TermReader, "constraints", note)
    with served() as (client, _):
        ask(client, "Hallo", forbidden=["Welt"])
    assert on_loop == [False]


def test_errors_before_and_within_a_stream() -> None:
    with served() as (client, _):
        assert "unknown option" in refused(client, 400, stream=True, options={"beam": 1})
        assert "q[1]" in refused(
            client, 413, stream=True, q=["a", "ja " * 90], split_sentences=False
        )
        events = streamed(client, f"{POISON} a")
    assert [name for name, _ in events] == ["error"]
    assert set(events[0][1]) == {"error", "code"}
    assert events[0][1]["code"] == "decoding_failed"


def test_leaving_a_stream_gives_its_sentences_up() -> None:
    translator, settings = EchoTranslator(), Settings()
    registry = Registry(settings)
    registry.start([translator])

    async def leave() -> int:
        text = "Ein langer Satz mit vielen Worten. " * 3
        job = TranslationJob(texts=[text], source="de", target="en")
        context = RequestContext("leaving", client="somebody")
        events = await Jobs(registry, settings, Gatekeeper(settings)).stream(job, context)
        first = await anext(events)
        assert isinstance(first, TextPartial)
        translator.stepper.gate.clear()
        await events.aclose()
        return translator.stepper.steps

    steps = asyncio.run(leave())
    translator.stepper.gate.set()
    wait_until(lambda: all(state.freed for state in translator.stepper.states))
    assert translator.stepper.steps <= steps + 3
    registry.close()


def test_a_stream_in_python() -> None:
    settings = Settings()
    registry = Registry(settings)
    registry.start([EchoTranslator()])

    async def run() -> list[TextPartial | JobResult]:
        jobs = Jobs(registry, settings, Gatekeeper(settings))
        context = RequestContext("staying", client="somebody")
        slow = TranslationJob(texts=["a"], source="de", target="en", timeout_s=10**6)
        with pytest.raises(RequestError, match="timeout_s must be at most"):
            await jobs.stream(slow, context)
        job = TranslationJob(texts=["Ein Satz."], source="de", target="en")
        events = await jobs.stream(job, context)
        return [event async for event in events]

    *partials, last = asyncio.run(run())
    assert all(isinstance(event, TextPartial) for event in partials)
    assert isinstance(last, JobResult)
    assert last.translations[0].text == "Ein Satz."
    registry.close()
