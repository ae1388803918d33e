"""The memory of caches, which the batches on one device share."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import TooLongError
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import GenerationRequest
from serving.queue.limits import BatchLimits
from serving.runtime.session import DeviceUse
from serving.search.sampling_options import GenerationOptions
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.generation.fake_generator import FakeGenerator

PATIENT = 60.0
ONE, TWO = DeviceUse("cuda", "a test"), DeviceUse("cuda", "a test", count=2)


@pytest.mark.parametrize(
    ("batches", "devices", "each"),
    [(1, 1, 1200), (3, 1, 400), (2, 2, 1200), (3, 2, 600), (4, 2, 600), (1, 2, 1200)],
)
def test_batches_on_one_device_share_its_memory(batches: int, devices: int, each: int) -> None:
    shared = BatchLimits(max_rows=7, max_cache_bytes=1200).shared(batches, devices)
    assert shared == BatchLimits(max_rows=7, max_cache_bytes=each)


def most_rows(device: DeviceUse) -> int:
    """Of a batch of one of two engines, where the memory is that of four such sentences."""
    translator, rows = EchoTranslator(), list[int]()
    translator.device = device
    asked = [Request(text=f"{number}abcdefgh") for number in range(16)]
    sentence = translator.texts.prepare(asked[0])
    assert sentence is not None
    demand, sizes = translator.texts.demand(sentence), translator.stepper
    needed = sizes.cache_bytes(4, demand.source_length, demand.slots)
    step = sizes.step

    def watched(state: Any, inputs: Any, **named: Any) -> Any:
        rows.append(len(inputs.token_ids_BQ))
        return step(state, inputs, **named)

    sizes.step = watched  # type: ignore[method-assign]
    limits = BatchLimits(max_cache_bytes=needed)
    scheduler = TranslationScheduler(translator, workers=2, limits=limits)
    for ticket in scheduler.submit_all(asked):
        ticket.result(PATIENT)
    scheduler.close(PATIENT)
    return max(rows)


def test_batches_are_as_large_on_each_of_two_devices_as_on_one() -> None:
    assert most_rows(TWO) == 4
    assert most_rows(ONE) == 2


def test_a_prompt_may_take_all_the_memory_of_a_device() -> None:
    generator = FakeGenerator()
    request = GenerationRequest(prompt="abc", options=GenerationOptions(max_length=20))
    limits = BatchLimits(max_cache_bytes=60)
    generator.device = TWO
    scheduler = GenerationScheduler(generator, workers=2, limits=limits)
    assert scheduler.submit(request).result(PATIENT).choices
    scheduler.close(PATIENT)
    generator.device = ONE
    scheduler = GenerationScheduler(generator, workers=2, limits=limits)
    with pytest.raises(TooLongError, match="max_cache_bytes allows 0 MiB"):
        scheduler.submit(request)
    scheduler.close(PATIENT)
