"""One running batch of a language model: joins, events, cancellation, limits, faults."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.errors import (
    CancelledError,
    ContextLengthError,
    DeadlineExceededError,
    DecoderLostError,
    InvalidOptionError,
    NotReadyError,
    OverloadedError,
    TooLongError,
)
from serving.generation.choices import Generation
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import (
    Delta,
    GenerationDone,
    GenerationRequest,
    GenerationTicket,
    PromptRead,
)
from serving.generation.work import PromptTask, prompt_demand
from serving.queue.limits import BatchLimits
from serving.search.sampling_options import GenerationOptions
from serving.server.http.metrics import Metrics, State

PROMPTS = ["the old man", "", "a dog sees", "the", "every child " * 12]
LONG = GenerationOptions(max_length=3000, min_length=3000)


@pytest.fixture
def scheduler(generator: Generator) -> Iterator[GenerationScheduler]:
    scheduler = GenerationScheduler(generator, max_queue=20, max_context_tokens=4000)
    yield scheduler
    scheduler.close(30)


def test_requests_of_all_kinds_in_one_batch_are_answered_as_alone(
    generator: Generator, scheduler: GenerationScheduler
) -> None:
    options = [
        GenerationOptions(max_length=20, seed=3),
        GenerationOptions(max_length=40, temperature=0),
        GenerationOptions(max_length=10, seed=4, num_hypotheses=3),
        GenerationOptions(max_length=15, beam_size=3, num_hypotheses=2),
        GenerationOptions(max_length=0),
        GenerationOptions(max_length=30, seed=5, repetition_penalty=1.2),
    ]
    requests = [
        GenerationRequest(prompt=prompt, options=o)
        for o in options
        for prompt in ("the old man", [5, 6, 7])
    ]
    wanted = [tuple(generator.generate([r.prompt], r.options)[0]) for r in requests]
    found = [ticket.result(60).choices for ticket in scheduler.submit_all(requests)]
    assert found == wanted


@pytest.mark.parametrize("stop", [(), ("e",), ("ee", " t", "o")])
def test_events_add_up_to_the_result(scheduler: GenerationScheduler, stop: tuple[str, ...]) -> None:
    async def follow() -> tuple[list[object], list[object]]:
        options = GenerationOptions(max_length=40, seed=2, num_hypotheses=2, stop=stop)
        request = GenerationRequest(prompt="the old", options=options)
        ticket = scheduler.submit(dataclasses.replace(request, score_prompt=True))
        early = [event async for event in ticket.events()]
        late = [event async for event in ticket.events()]  # from the beginning, after the end
        return early, late

    early, late = asyncio.run(follow())
    assert early == late
    read, *deltas, done = early
    assert isinstance(read, PromptRead)
    assert isinstance(done, GenerationDone)
    assert [token.token for token in read.tokens][1:] == [" t", "he", " ", "o", "l", "d"]
    for number, choice in enumerate(done.choices):
        parts = [d for d in deltas if isinstance(d, Delta) and d.choice == number]
        assert "".join(part.text for part in parts) == choice.text
        assert tuple(token for part in parts for token in part.tokens) == choice.tokens
        assert [part.finish_reason for part in parts[:-1]] == [""] * (len(parts) - 1)
        assert parts[-1].finish_reason == choice.finish_reason
        assert not any(text in choice.text for text in stop)


def until(condition: object) -> None:
    end = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def test_cancelled_and_overdue_requests_free_their_rows(scheduler: GenerationScheduler) -> None:
    slow = scheduler.submit(GenerationRequest(prompt="a", options=LONG))
    beam = dataclasses.replace(LONG, beam_size=2)
    searching = scheduler.submit(GenerationRequest(prompt="a", options=beam))
    overdue = scheduler.submit(GenerationRequest(prompt="a", options=LONG, timeout_s=0.2))
    until(lambda: scheduler.num_held == 3)
    with pytest.raises(DeadlineExceededError):
        overdue.result(20)
    until(lambda: scheduler.num_held == 2)
    for ticket in (slow, searching):
        ticket.cancel()
        with pytest.raises(CancelledError):
            ticket.result(1)
    until(lambda: scheduler.num_held == 0)
    assert scheduler.submit(GenerationRequest(prompt="a")).result(20).choices


class Followed:
    """Counts what is told of a ticket, on a thread of its own."""

    def __init__(self, ticket: GenerationTicket) -> None:
        self.ticket, self.num_deltas = ticket, 0
        threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True).start()

    async def _follow(self) -> None:
        with contextlib.suppress(CancelledError):
            async for event in self.ticket.events():
                self.num_deltas += isinstance(event, Delta)


def test_long_prompts_hold_nobody_up(generator: Generator, scheduler: GenerationScheduler) -> None:
    running = Followed(scheduler.submit(GenerationRequest(prompt="a", options=LONG)))
    until(lambda: running.num_deltas > 0)
    options = GenerationOptions(max_length=1, num_logprobs=5)
    prompts = [[5 + i % 300 for i in range(n, n + 3900)] for n in range(12)]
    tickets = scheduler.submit_all(
        [GenerationRequest(prompt=p, options=options, score_prompt=True) for p in prompts]
    )
    before = running.num_deltas
    tickets[0].result(60)
    assert running.num_deltas - before > 20  # a step between two chunks
    for ticket in tickets[1:]:
        ticket.cancel()
    start = time.monotonic()
    assert scheduler.submit(GenerationRequest(prompt="a")).result(20).choices
    assert time.monotonic() - start < 10
    running.ticket.cancel()


def test_light_attention_needs_little_memory_for_long_prompts(generator: Generator) -> None:
    request = GenerationRequest(prompt="", options=GenerationOptions(max_length=100))
    short, long = (
        prompt_demand(PromptTask(request, [5] * length, 0), generator.sizes)
        for length in (100, 3000)
    )
    assert short == long


def test_limits(generator: Generator) -> None:
    limits = BatchLimits(max_rows=4, max_cache_bytes=400_000)
    scheduler = GenerationScheduler(generator, max_queue=2, max_context_tokens=4000, limits=limits)
    try:
        with pytest.raises(ContextLengthError, match="at most 4000 tokens together"):
            scheduler.submit(
                GenerationRequest(prompt="a", options=GenerationOptions(max_length=4000))
            )
        with pytest.raises(TooLongError, match="at most 4 outputs"):
            scheduler.submit(
                GenerationRequest(prompt="a", options=GenerationOptions(num_hypotheses=5))
            )
        tickets = []
        for rows in range(1, 5):
            tickets.append(scheduler.submit(GenerationRequest(prompt="a", options=LONG)))
            until(lambda rows=rows: scheduler.num_held == rows)
        waiting = [scheduler.submit(GenerationRequest(prompt="a")) for _ in range(2)]
        with pytest.raises(OverloadedError, match="holds at most 2 prompts"):
            scheduler.submit(GenerationRequest(prompt="a"))
        wide = GenerationOptions(beam_size=32, max_length=3000)
        with pytest.raises(TooLongError, match="MiB of cache, max_cache_bytes allows 0 MiB"):
            scheduler.submit(GenerationRequest(prompt="a", options=wide))
        assert scheduler.num_held == 4
        tickets[0].cancel()
        assert [ticket.result(20).choices for ticket in waiting]
        for ticket in tickets:
            ticket.cancel()
    finally:
        scheduler.close(30)
    with pytest.raises(NotReadyError):
        scheduler.submit(GenerationRequest(prompt="a"))


def test_a_failing_prompt_or_batch_does_not_end_the_scheduler(
    generator: Generator, scheduler: GenerationScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = GenerationRequest(prompt="a", options=GenerationOptions(max_length=5, seed=1))
    wanted = scheduler.submit(fine).result(20)
    # Nothing is left to draw once every token is used.
    options = GenerationOptions(max_length=2000, no_repeat_ngram_size=1, min_length=2000)
    tickets = scheduler.submit_all([GenerationRequest(prompt="a", options=options), fine])
    with pytest.raises(InvalidOptionError, match="no token that could continue"):
        tickets[0].result(30)
    assert tickets[1].result(20) == wanted

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        for name in ("next", "bind_next"):  # a step by itself, and steps on bound arrays
            patch.setattr(generator.stepper, name, fail)
        with pytest.raises(DecoderLostError, match="try again"):
            scheduler.submit(fine).result(20)
    assert scheduler.submit(fine).result(20) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_under_random_arrivals(generator: Generator, workers: int) -> None:
    scheduler = GenerationScheduler(generator, limits=BatchLimits(max_rows=8), workers=workers)
    wanted: dict[tuple[str, int], tuple[Generation, ...]] = {}
    for prompt in PROMPTS:
        for seed in range(3):
            options = GenerationOptions(max_length=6 + seed * 5, seed=seed)
            wanted[prompt, seed] = tuple(generator.generate(prompt, options)[0])
    found: list[tuple[tuple[str, int], tuple[Generation, ...]]] = []
    cancelled: list[bool] = []

    def client(number: int) -> None:
        choice = random.Random(number)
        for _ in range(25):
            prompt, seed = choice.choice(PROMPTS), choice.randrange(3)
            options = GenerationOptions(max_length=6 + seed * 5, seed=seed)
            ticket = scheduler.submit(GenerationRequest(prompt=prompt, options=options))
            if choice.random() < 0.2:
                time.sleep(choice.random() * 0.01)
                ticket.cancel()
                cancelled.append(ticket.done)
            else:
                found.append(((prompt, seed), ticket.result(60).choices))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scheduler.close(30)
    assert len(found) + len(cancelled) == 200
    assert all(cancelled)
    assert all(choices == wanted[key] for key, choices in found)
    assert scheduler.num_held == 0
    assert not np.isnan([choice.cumulative for _, choices in found for choice in choices]).any()


def test_it_says_when_prompts_join_when_text_begins_and_what_was_generated(
    generator: Generator,
) -> None:
    metrics = Metrics(lambda: State(ready=True, models=[]))
    scheduler = GenerationScheduler(generator, observer=metrics.observer("lm"))
    options = GenerationOptions(max_length=5, min_length=5, num_hypotheses=2)
    tickets = scheduler.submit_all([GenerationRequest(prompt=p, options=options) for p in PROMPTS])
    results = [ticket.result(60) for ticket in tickets]
    scheduler.close(30)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.labels == {"model": "lm"}
    }
    assert found["macaron_queue_wait_seconds_count"] == len(PROMPTS)
    assert found["macaron_time_to_first_token_seconds_count"] == len(PROMPTS)
    assert found["macaron_time_to_first_token_seconds_sum"] > 0
    assert found["macaron_decoded_total"] == len(PROMPTS)
    generated = sum(result.num_generated_tokens for result in results)
    assert found["macaron_generated_tokens_total"] == generated == 2 * 5 * len(PROMPTS)
    assert found["macaron_batch_size_sum"] >= 2 * len(PROMPTS)


def test_what_is_given_up_at_the_end_fails_and_frees_its_rows(generator: Generator) -> None:
    scheduler = GenerationScheduler(generator, max_context_tokens=4000)
    tickets = scheduler.submit_all([GenerationRequest(prompt=p, options=LONG) for p in PROMPTS])
    end = time.monotonic() + 30
    while not scheduler.num_held:
        assert time.monotonic() < end
        time.sleep(0.005)
    scheduler.retire()
    scheduler.abandon()
    for ticket in tickets:
        with pytest.raises(NotReadyError, match="shutting down"):
            ticket.result(30)
    scheduler.close(30)
    assert scheduler.num_held == 0
