"""The schedulers of both tasks under random load, with one and with several engines."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from serving.errors import CancelledError, DeadlineExceededError
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import GenerationRequest
from serving.queue.decoder import Scheduler
from serving.search.options import SearchOptions
from serving.search.sampling_options import GenerationOptions
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, Request
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.generation.fake_generator import FakeGenerator

PATIENT = 120.0
MANY = 100_000


def submit_at_random(
    scheduler: Scheduler[Any, Any, Any],
    draw: Callable[[random.Random, float | None], Any],
    rounds: int,
) -> list[tuple[Any, Any]]:
    """Several threads submit, cancel and set deadlines at random. Every ticket ends, by what was
    done to it or with a result; returns requests and results of the latter."""
    submitted: list[tuple[Any, Any]] = []
    cancelled: set[int] = set()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(rounds):
            # Far off: what would wait too long is refused, on a busy machine soon.
            requests = [
                draw(rng, rng.choice([None, None, None, 0.0, 3600.0]))
                for _ in range(rng.randint(1, 4))
            ]
            tickets = scheduler.submit_all(requests)  # type: ignore[attr-defined]
            if rng.random() < 0.1:
                given_up = rng.choice(tickets)
                given_up.cancel()
                cancelled.add(id(given_up))
            submitted.extend(zip(requests, tickets, strict=True))

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(PATIENT)
    scheduler.close(PATIENT)
    assert len(submitted) > 9 * rounds  # by chance about ten
    assert (scheduler.queue_depth, scheduler.num_held) == (0, 0)
    results = []
    for request, ticket in submitted:
        assert ticket.done
        try:
            results.append((request, ticket.result(0)))
        except CancelledError:
            assert id(ticket) in cancelled
        except DeadlineExceededError:
            assert request.timeout_s == 0.0
    return results


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_no_text_is_lost_among_ten_thousand(workers: int) -> None:
    def draw(rng: random.Random, timeout_s: float | None) -> Request:
        text = "".join(rng.choices("abcdefgh", k=rng.choice([0, 1, 2, 2, 3, 6])))
        options = SearchOptions(beam_size=rng.choice([1, 1, 1, 2]))
        return Request(text=text, options=options, timeout_s=timeout_s)

    scheduler = TranslationScheduler(EchoTranslator(), max_queue=MANY, workers=workers)
    for request, completed in submit_at_random(scheduler, draw, 1050):
        assert isinstance(completed, Completed)
        if "repetition" not in completed.translation.warnings:
            assert completed.translation.text == request.text


@pytest.mark.parametrize("workers", [1, 3])
def test_no_prompt_is_lost_among_more_than_a_thousand(workers: int) -> None:
    generator = FakeGenerator()
    options = [
        GenerationOptions(max_length=3, seed=1),
        GenerationOptions(max_length=2, seed=2, num_hypotheses=2),
        GenerationOptions(max_length=0),
        GenerationOptions(max_length=2, beam_size=2),
    ]
    requests = [
        GenerationRequest(prompt=prompt, options=each, score_prompt=score)
        for prompt in ("", "a", "abc", "b" * 70)
        for each in options
        for score in (False, True)
    ]
    alone = GenerationScheduler(generator)
    wanted = {
        (request.prompt, request.options, request.score_prompt): alone.submit(request).result(60)
        for request in requests
    }
    alone.close(PATIENT)

    def draw(rng: random.Random, timeout_s: float | None) -> GenerationRequest:
        request = rng.choices(requests, [6, 2, 2, 1, 2, 1, 1, 1] * 4)[0]
        return GenerationRequest(
            prompt=request.prompt,
            options=request.options,
            score_prompt=request.score_prompt,
            timeout_s=timeout_s,
        )

    scheduler = GenerationScheduler(generator, max_queue=MANY, workers=workers)
    for request, done in submit_at_random(scheduler, draw, 150):
        assert done == wanted[request.prompt, request.options, request.score_prompt]
