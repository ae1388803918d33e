"""The scheduler under random load, with one and with several threads that decode."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from serving.errors import CancelledError, DeadlineExceededError
from serving.queue.limits import BatchLimits, Demand
from serving.search.sentence import Group
from serving.translation.scheduler import Request, Scheduler, TranslationTicket
from tests.unit.serving.echo import EchoStepper, EchoTranslator, wait_until
from tests.unit.serving.search.fake_stepper import FakeState
from tests.unit.serving.translation.test_scheduler import PATIENT, RandomTranslator, request


class WatchedStepper(EchoStepper):
    """Calls `watch` before each step."""

    watch: Callable[[FakeState], None]

    def step(self, state: FakeState, *arguments: Any, **options: Any) -> Any:
        """One step."""
        self.watch(state)
        return super().step(state, *arguments, **options)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_no_step_is_over_the_budget(seed: int, workers: int) -> None:
    """Sentences of every size and beam arrive at random; what runs at once stays in the limits."""
    rng = random.Random(seed)
    translator = EchoTranslator()
    stepper = translator.stepper = WatchedStepper()
    limits = BatchLimits(max_rows=5, max_tokens=60, max_cache_bytes=5_000 * workers)
    scheduler = Scheduler(translator, limits=limits, workers=workers)
    excesses: list[tuple[int, ...]] = []

    def check(state: FakeState) -> None:
        me = threading.current_thread()
        (own,) = (d for d in scheduler._decoders if d._thread is me)
        groups: dict[Group, list[Demand]] = {}
        for work in own._works.values():
            groups.setdefault(work.demand.group, []).append(work.demand)
        held = [
            (len(demands), max(d.source_length for d in demands), max(d.slots for d in demands))
            for demands in groups.values()
        ]
        rows = sum(count for count, _, _ in held)
        tokens = sum(count * length for count, length, _ in held)
        memory = sum(stepper.cache_bytes(*each) for each in held)
        if rows > 1 and (rows > 5 or tokens > 60 or memory > 5_000):
            excesses.append((rows, tokens, memory))
        # The arrays themselves, of whose rows a quarter may idle.
        count, width = len(state.sources), max(map(len, state.sources))
        memory = stepper.cache_bytes(count, width, state.cache_BC2.shape[1])
        if count > 1 and (count > 5 or 3 * count * width > 4 * 60 or 3 * memory > 4 * 5_000):
            excesses.append((count, width, memory))

    stepper.watch = check
    tickets = []
    for _ in range(120):
        text = "".join(rng.choices("abcdefgh", k=rng.choice([1, 2, 5, 20, 40])))
        tickets.append(scheduler.submit(request(text, rng.choice([1, 2, 2]))))
        if rng.random() < 0.2:
            time.sleep(0.002)
    for ticket in tickets:
        ticket.result(PATIENT)
    scheduler.close(PATIENT)
    assert excesses == []


def test_what_waits_is_shared_by_threads_that_idle() -> None:
    translator = EchoTranslator()
    translator.stepper.gate.clear()
    scheduler = Scheduler(translator, workers=3)
    texts = [f"{letter} text" for letter in "abcdefg"]
    tickets = scheduler.submit_all([request(text) for text in texts])
    wait_until(lambda: scheduler.queue_depth == 0)
    later = scheduler.submit(request("h text"))
    translator.stepper.gate.set()
    results = [ticket.result(PATIENT) for ticket in (*tickets, later)]
    scheduler.close(PATIENT)
    assert [result.translation.text for result in results] == [*texts, "h text"]
    sizes = sorted(result.timing.batch_size for result in results[:-1])
    assert sizes == [2, 2, 2, 2, 3, 3, 3]


def test_several_threads_find_what_one_finds() -> None:
    rng = random.Random(5)
    requests = [
        request("".join(rng.choices("abcdefgh", k=rng.randint(1, 12))), rng.choice([1, 2]))
        for _ in range(60)
    ]
    found = []
    for workers in (1, 4):
        scheduler = Scheduler(RandomTranslator(), workers=workers)
        tickets = [scheduler.submit(each) for each in requests]
        found.append([ticket.result(PATIENT).translation for ticket in tickets])
        scheduler.close(PATIENT)
    assert found[0] == found[1]


@pytest.mark.parametrize("workers", [1, 3])
def test_no_ticket_is_lost_among_ten_thousand(workers: int) -> None:
    """Several threads submit, cancel and set deadlines at random; every ticket ends rightly."""
    scheduler = Scheduler(EchoTranslator(), max_queue=100_000, workers=workers)
    outcomes: list[tuple[Request, TranslationTicket]] = []
    cancelled: list[TranslationTicket] = []

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(1050):
            requests = [
                request(
                    "".join(rng.choices("abcdefgh", k=rng.choice([0, 1, 2, 2, 3, 6]))),
                    beam_size=rng.choice([1, 1, 1, 2]),
                    # Far off: what would wait too long is refused, on a busy machine soon.
                    timeout_s=rng.choice([None, None, None, 0.0, 3600.0]),
                )
                for _ in range(rng.randint(1, 4))
            ]
            tickets = scheduler.submit_all(requests)
            if rng.random() < 0.1:
                cancelled.append(rng.choice(tickets))
                cancelled[-1].cancel()
            outcomes.extend(zip(requests, tickets, strict=True))

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(PATIENT)
    scheduler.close(PATIENT)
    assert len(outcomes) > 10_000
    given_up = {id(ticket) for ticket in cancelled}
    for sent, ticket in outcomes:
        assert ticket.done
        try:
            completed = ticket.result(0)
        except CancelledError:
            assert id(ticket) in given_up
            continue
        except DeadlineExceededError:
            assert sent.timeout_s == 0.0
            continue
        if "repetition" not in completed.translation.warnings:
            assert completed.translation.text == sent.text
