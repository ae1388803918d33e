"""The scheduler of language models over a fake one: faults, restarts, workers, metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.errors import DecoderLostError, DecodingError
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import GenerationDone, GenerationRequest
from serving.queue.limits import BatchLimits
from serving.search.sampling_options import GenerationOptions
from serving.server.http.metrics import Metrics, State
from tests.unit.serving.echo import wait_until
from tests.unit.serving.generation.fake_generator import FakeGenerator

PATIENT = 60.0
PROMPTS = ["abc", "", "the end of it", "abcd"]


@pytest.fixture
def generator() -> FakeGenerator:
    return FakeGenerator()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: State(ready=True, models=[]))


@pytest.fixture
def scheduler(generator: FakeGenerator, metrics: Metrics) -> Iterator[GenerationScheduler]:
    scheduler = GenerationScheduler(generator, observer=metrics.observer("lm"))
    yield scheduler
    scheduler.close(PATIENT)


def request(
    prompt: str, *, seed: int = 1, length: int = 6, score: bool = False, **options: object
) -> GenerationRequest:
    chosen = GenerationOptions(max_length=length, seed=seed, **options)  # type: ignore[arg-type]
    return GenerationRequest(prompt=prompt, options=chosen, score_prompt=score)


def mixed() -> list[GenerationRequest]:
    """Requests of every kind."""
    return [
        *(request(prompt, seed=seed) for prompt in PROMPTS for seed in range(3)),
        *(request(prompt, num_hypotheses=2, best_of=3) for prompt in PROMPTS),
        *(
            GenerationRequest(prompt=p, options=GenerationOptions(max_length=5, beam_size=2))
            for p in PROMPTS
        ),
        *(request(prompt, length=0, score=True) for prompt in PROMPTS),
        *(request(prompt, score=True) for prompt in PROMPTS),
    ]


def values(metrics: Metrics) -> dict[str, float]:
    """What is counted of the model."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.labels == {"model": "lm"}
    }


def results(scheduler: GenerationScheduler) -> list[GenerationDone]:
    return [ticket.result(PATIENT) for ticket in scheduler.submit_all(mixed())]


def test_a_failing_engine_is_started_again_and_serves_what_comes_next(
    generator: FakeGenerator, scheduler: GenerationScheduler, metrics: Metrics
) -> None:
    wanted = scheduler.submit(request("abc")).result(PATIENT)
    held, failing = threading.Event(), threading.Event()

    def fail() -> None:
        held.set()
        assert failing.wait(PATIENT)
        raise RuntimeError("out of memory")

    generator.stepper.before_step = fail
    running = scheduler.submit_all([request("abc"), request("de", num_hypotheses=3)])
    assert held.wait(PATIENT)
    waiting = scheduler.submit(request("abc"))  # it is not in the engine that fails
    generator.stepper.before_step = lambda: None
    failing.set()
    for ticket in running:
        with pytest.raises(DecoderLostError, match="try again"):
            ticket.result(PATIENT)
    assert waiting.result(PATIENT) == wanted
    assert values(metrics)["macaron_decoders_lost_total"] == 1
    assert scheduler.submit(request("abc")).result(PATIENT) == wanted
    wait_until(lambda: scheduler.num_held == 0)


def test_what_fails_of_one_prompt_is_its_own_affair(
    generator: FakeGenerator, scheduler: GenerationScheduler, metrics: Metrics
) -> None:
    wanted = scheduler.submit(request("good")).result(PATIENT)
    poison = tuple(enumerate(generator.prompts.encode("bad")))
    generator.stepper.model.broken = lambda _, slots: slots[: len(poison)] == poison
    generator.stepper.model.memo.clear()
    bad, good = scheduler.submit_all([request("bad"), request("good")])
    with pytest.raises(DecodingError, match="non-finite"):
        bad.result(PATIENT)
    assert good.result(PATIENT) == wanted
    assert values(metrics)["macaron_decoders_lost_total"] == 0


def test_two_workers_give_what_one_gives(generator: FakeGenerator) -> None:
    found = []
    for workers in (1, 2):
        limits = BatchLimits(max_rows=7)
        scheduler = GenerationScheduler(generator, limits=limits, workers=workers)
        found.append(results(scheduler))
        scheduler.close(PATIENT)
    assert found[0] == found[1]


def test_two_workers_decode_at_the_same_time(generator: FakeGenerator) -> None:
    scheduler = GenerationScheduler(generator, workers=2)
    together = threading.Barrier(2)
    generator.stepper.before_step = lambda: together.wait(PATIENT) and None
    tickets = scheduler.submit_all(
        [request(prompt, length=2, min_length=2) for prompt in ("abc", "defg")]
    )
    assert all(ticket.result(PATIENT).choices for ticket in tickets)
    scheduler.close(PATIENT)


def test_every_metric_of_a_scheduler_is_reported(
    generator: FakeGenerator, scheduler: GenerationScheduler, metrics: Metrics
) -> None:
    gate = threading.Event()
    generator.stepper.before_step = lambda: gate.wait(PATIENT) and None
    requests = [request(prompt, length=4, min_length=4, num_hypotheses=2) for prompt in PROMPTS]
    tickets = scheduler.submit_all(requests)
    wait_until(lambda: scheduler.num_held == 2 * len(PROMPTS))
    assert scheduler.queue_depth == 0
    late = scheduler.submit(request("late", length=0))
    assert scheduler.queue_depth == 1
    gate.set()
    for ticket in (*tickets, late):
        ticket.result(PATIENT)
    wait_until(lambda: scheduler.num_held == 0)
    found, lengths = values(metrics), [len(generator.prompts.encode(p)) for p in PROMPTS]
    assert found["macaron_queue_wait_seconds_count"] == len(PROMPTS) + 1
    assert found["macaron_time_to_first_token_seconds_count"] == len(PROMPTS)
    assert found["macaron_decoded_total"] == len(PROMPTS) + 1
    assert found["macaron_generated_tokens_total"] == 4 * 2 * len(PROMPTS)
    # The prompts that came together, and the late one beside them.
    rows = 2 * len(PROMPTS)
    assert found["macaron_batch_size_sum"] == rows + (rows + 1)
    assert found["macaron_batch_tokens_sum"] == (rows + rows + 1) * max(lengths)
    assert scheduler.answer_cache_bytes == 0
