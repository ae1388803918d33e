"""The scheduler under random load, with one and with several threads that decode."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from serving.queue.limits import BatchLimits, Demand
from serving.search.beams.sentence import Sentence
from serving.search.options import Group
from serving.translation.running import RunningBatches, SentenceProgress
from serving.translation.scheduler import TranslationScheduler
from serving.translation.texts import demand
from tests.unit.serving.echo import EchoStepper, EchoTranslator, wait_until
from tests.unit.serving.search.fake_stepper import FakeState
from tests.unit.serving.translation.test_scheduler import PATIENT, RandomTranslator, request

LIMITS = BatchLimits(max_rows=5, max_tokens=60, max_cache_bytes=5_000)
"""Of one engine."""


class WatchedEngine:
    """An engine that notes whenever what it holds is over the limits."""

    lost, company = False, 0

    def __init__(self, engine: RunningBatches, stepper: EchoStepper) -> None:
        self._engine, self._stepper = engine, stepper
        self._demands: dict[int, Demand] = {}
        self.excesses: list[tuple[int, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def join(self, tasks: Mapping[int, Sentence]) -> None:
        """Let sentences join."""
        self._demands |= {n: demand(task, self._stepper) for n, task in tasks.items()}
        self._engine.join(tasks)

    def step(self) -> SentenceProgress:
        """One step."""
        groups: dict[Group, list[Demand]] = {}
        for each in self._demands.values():
            groups.setdefault(each.group, []).append(each)
        held = [
            (len(demands), max(d.source_length for d in demands), max(d.slots for d in demands))
            for demands in groups.values()
        ]
        rows = sum(count for count, _, _ in held)
        tokens = sum(count * length for count, length, _ in held)
        memory = sum(self._stepper.cache_bytes(*each) for each in held)
        if rows > 1 and (
            rows > LIMITS.max_rows or tokens > LIMITS.max_tokens or memory > LIMITS.max_cache_bytes
        ):
            self.excesses.append((rows, tokens, memory))
        progress = self._engine.step()
        for number, _ in progress.outcomes:
            del self._demands[number]
        return progress


class WatchedStepper(EchoStepper):
    """Notes arrays that are over the limits, of whose rows a quarter may idle."""

    def __init__(self) -> None:
        super().__init__()
        self.excesses: list[tuple[int, int, int]] = []

    def step(self, state: FakeState, *arguments: Any, **options: Any) -> Any:
        """One step."""
        count, width = len(state.sources), max(map(len, state.sources))
        memory = self.cache_bytes(count, width, state.cache_BC2.shape[1])
        if count > 1 and (
            count > LIMITS.max_rows
            or 3 * count * width > 4 * LIMITS.max_tokens
            or 3 * memory > 4 * LIMITS.max_cache_bytes
        ):
            self.excesses.append((count, width, memory))
        return super().step(state, *arguments, **options)


class WatchedTranslator(EchoTranslator):
    """Its engines are watched."""

    def __init__(self) -> None:
        super().__init__(stepper=WatchedStepper())
        self.engines: list[WatchedEngine] = []

    def engine(self) -> WatchedEngine:  # type: ignore[override]
        """A further one."""
        self.engines.append(WatchedEngine(super().engine(), self.stepper))
        return self.engines[-1]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_no_step_is_over_the_budget(seed: int, workers: int) -> None:
    """Sentences of every size and beam arrive at random; what runs at once stays in the limits."""
    rng = random.Random(seed)
    translator = WatchedTranslator()
    limits = replace(LIMITS, max_cache_bytes=LIMITS.max_cache_bytes * workers)
    scheduler = TranslationScheduler(translator, limits=limits, workers=workers)
    tickets = []
    for _ in range(120):
        text = "".join(rng.choices("abcdefgh", k=rng.choice([1, 2, 5, 20, 40])))
        tickets.append(scheduler.submit(request(text, rng.choice([1, 2, 2]))))
        if rng.random() < 0.2:
            time.sleep(0.002)
    for ticket in tickets:
        ticket.result(PATIENT)
    scheduler.close(PATIENT)
    assert len(translator.engines) == workers
    assert [engine.excesses for engine in translator.engines] == [[]] * workers
    assert translator.stepper.excesses == []


def test_what_waits_is_shared_by_threads_that_idle() -> None:
    translator = EchoTranslator()
    translator.stepper.gate.clear()
    scheduler = TranslationScheduler(translator, workers=3)
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
        scheduler = TranslationScheduler(RandomTranslator(), workers=workers)
        tickets = [scheduler.submit(each) for each in requests]
        found.append([ticket.result(PATIENT).translation for ticket in tickets])
        scheduler.close(PATIENT)
    assert found[0] == found[1]
