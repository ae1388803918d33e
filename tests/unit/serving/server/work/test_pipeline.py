"""A client that goes away, seen from inside: the app is called as a server calls it."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from serving.errors import DecodingError
from serving.queue.ticket import Ticket
from serving.server.access.gate import Gatekeeper
from serving.server.app import create_app
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.models.served import StoredTranslator
from serving.server.work.pipeline import Caller, Pipeline, TimeLimit
from tests.unit.serving.echo import EchoTranslator

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/translate",
    "raw_path": b"/translate",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"content-type", b"application/json")],
}


class Client:
    """Sends a body, in two parts, and leaves when told to."""

    def __init__(self, app: ASGIApp, *texts: str, source: str = "de") -> None:
        self.app, self.sent = app, list[Message]()
        self.leaving = asyncio.Event()
        body = json.dumps({"q": texts, "source": source, "target": "en"}).encode()
        self._parts = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.request", "body": body[9:], "more_body": False},
        ]

    async def receive(self) -> Message:
        if self._parts:
            return self._parts.pop(0)
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def ask(self) -> None:
        await self.app(dict(SCOPE), self.receive, self.send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


async def until(condition: object) -> None:
    end = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.005)


def test_what_a_client_asked_for_is_given_up_when_it_leaves() -> None:
    translator = EchoTranslator()
    stepper = translator.stepper
    registry = Registry(Settings())
    registry.start([translator])
    scheduler = registry.translators[0].scheduler

    async def scenario() -> None:
        app = create_app(registry, Settings())
        staying, leaving = Client(app, "eins", "zwei"), Client(app, "drei", "vier")
        waiting = Client(app, "fünf", "sechs")
        stepper.gate.clear()
        leaving_task = asyncio.create_task(leaving.ask())
        await until(lambda: len(stepper.states) == 2)  # its batch has begun
        waiting_task = asyncio.create_task(waiting.ask())
        await until(lambda: scheduler.queue_depth == 2)
        staying_task = asyncio.create_task(staying.ask())
        await until(lambda: scheduler.queue_depth == 4)
        steps = stepper.steps
        leaving.leaving.set()
        waiting.leaving.set()
        await asyncio.wait_for(asyncio.gather(leaving_task, waiting_task), 5)
        stepper.gate.set()
        await asyncio.wait_for(staying_task, 20)
        assert staying.status == 200
        assert (leaving.status, waiting.status) == (499, 499)
        # One step of the batch that was left had begun; the waiting texts were never decoded.
        assert stepper.steps <= steps + 1 + len("zwei") + 1
        assert len(stepper.states) == 3
        assert len(stepper.states[2].sources) <= 2
        assert all(state.freed for state in stepper.states)

    try:
        asyncio.run(scenario())
    finally:
        stepper.gate.set()
        registry.close()


def test_a_client_that_leaves_while_it_sends_costs_nothing() -> None:
    registry = Registry(Settings())
    registry.start([EchoTranslator()])

    async def scenario() -> None:
        client = Client(create_app(registry, Settings()), "eins")
        client._parts = client._parts[:1]
        client.leaving.set()
        await asyncio.wait_for(client.ask(), 5)
        assert client.status == 499

    try:
        asyncio.run(scenario())
    finally:
        registry.close()


def test_who_waits_for_a_model_to_be_loaded_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are far more of them than there are threads for all requests."""
    # All of them wait at once: a machine that pauses for a moment must not look overloaded.
    settings = Settings(max_wait_s=600, default_timeout_s=600, max_timeout_s=600)
    registry, loading = Registry(settings), threading.Event()
    registry.start([EchoTranslator(), EchoTranslator("b", "fr", "en")])
    there = next(model for model in registry.translators if model.name == "b")
    registry._put(StoredTranslator(there.manifest))

    def load(_: object) -> StoredTranslator:
        assert loading.wait(20)
        return there

    monkeypatch.setattr(registry, "_load_stored", load)

    async def scenario() -> None:
        app = create_app(registry, settings)
        waiting = [Client(app, f"Texte {number}", source="fr") for number in range(60)]
        tasks = [asyncio.create_task(client.ask()) for client in waiting]
        await asyncio.sleep(0.2)
        for text in ("kurz", "lang " * 300):
            other = Client(app, text)
            await asyncio.wait_for(other.ask(), 10)
            assert other.status == 200
        assert not any(task.done() for task in tasks)
        loading.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        assert [client.status for client in waiting] == [200] * 60

    try:
        asyncio.run(scenario())
    finally:
        loading.set()
        registry.close()


def test_the_loop_is_woken_once_for_many_texts() -> None:
    tickets = [Ticket[int]() for _ in range(50)]
    gatekeeper = Gatekeeper(Settings())
    woken = 0

    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def count(*arguments: Any) -> Any:
            nonlocal woken
            woken += 1
            return call(*arguments)

        loop.call_soon_threadsafe = count  # type: ignore[method-assign]
        caller = Caller(RequestContext("id"), 0, asyncio.Event().wait)  # type: ignore[arg-type]
        results = Pipeline(Settings(), gatekeeper).results(tickets, caller, TimeLimit(20.0, None))
        waiting = asyncio.create_task(results)
        await asyncio.sleep(0)
        await asyncio.to_thread(
            lambda: [ticket.complete(number) for number, ticket in enumerate(tickets)]
        )
        return await waiting

    assert asyncio.run(scenario()) == list(range(50))
    assert woken <= 3  # one of them is of the thread that completes them


def test_the_first_error_of_many_texts_ends_the_request_and_gives_up_the_rest() -> None:
    tickets = [Ticket[int]() for _ in range(5)]

    async def scenario() -> None:
        caller = Caller(RequestContext("id"), 0, asyncio.Event().wait)  # type: ignore[arg-type]
        pipeline = Pipeline(Settings(), Gatekeeper(Settings()))
        waiting = asyncio.create_task(pipeline.results(tickets, caller, TimeLimit(20.0, None)))
        await asyncio.sleep(0)
        tickets[3].complete(3)
        tickets[1].fail(DecodingError("of one text"))
        with pytest.raises(DecodingError, match="of one text"):
            await waiting

    asyncio.run(scenario())
    assert all(ticket.done for ticket in tickets)


def test_what_nobody_waits_for_is_held_and_has_no_limit_but_its_own() -> None:
    settings = Settings()
    pipeline = Pipeline(settings, Gatekeeper(settings))
    background, waiting = RequestContext("id", background=True), RequestContext("id")
    limit = pipeline.limit(None, background)
    assert (limit.timeout_s, limit.max_wait_s, limit.held) == (math.inf, None, [])
    assert limit.rest().timeout_s == math.inf
    assert limit.rest().held is not limit.held
    assert pipeline.limit(3.0, background).timeout_s == 3.0
    assert pipeline.limit(None, waiting).timeout_s == settings.default_timeout_s
    assert pipeline.limit(None, waiting).held is None
