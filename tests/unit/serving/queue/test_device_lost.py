"""A GPU that the server's own process has lost: what was running fails, and nobody is sent here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from serving.encoding.scheduler import TextEngine, TextScheduler
from serving.errors import DeviceLostError, NotReadyError
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import GenerationRequest
from serving.queue.decoder import Scheduler
from serving.queue.observer import Observer
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, wait_until
from tests.unit.serving.generation.fake_generator import FakeGenerator

PATIENT = 60.0


class Gpu:
    """Is lost for good, or for so many calls."""

    def __init__(self, calls: float = float("inf")) -> None:
        self.left = calls

    def check(self) -> None:
        if self.left > 0:
            self.left -= 1
            raise DeviceLostError("the GPU has failed (CUDA failure 700); try again")

    def watch(self, act: Any) -> Any:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.check()
            return act(*arguments, **named)

        return watched


class Losses(Observer):
    """Counts engines that were lost."""

    count = 0

    def lost(self) -> None:
        self.count += 1


def translation(gpu: Gpu, observer: Observer) -> tuple[Scheduler[Any, Any, Any], Any]:
    translator = EchoTranslator()
    translator.stepper.step = gpu.watch(translator.stepper.step)  # type: ignore[method-assign]
    return TranslationScheduler(translator, observer=observer), Request(text="abc")


def generation(gpu: Gpu, observer: Observer) -> tuple[Scheduler[Any, Any, Any], Any]:
    generator = FakeGenerator()
    generator.stepper.next = gpu.watch(generator.stepper.next)
    return GenerationScheduler(generator, observer=observer), GenerationRequest(prompt="abc")


def reading(gpu: Gpu, observer: Observer) -> tuple[Scheduler[Any, Any, Any], Any]:
    encoder: Any = SimpleNamespace(run=gpu.watch(lambda texts: [[1.0]] * len(texts)))
    model = SimpleNamespace(engine=lambda: TextEngine(encoder))
    return TextScheduler(model, observer=observer), SimpleNamespace(ids=[5])


@pytest.mark.parametrize("task", [translation, generation, reading])
def test_what_runs_fails_and_the_scheduler_knows_that_it_cannot_decode(task: Any) -> None:
    losses = Losses()
    scheduler, asked = task(Gpu(calls=1), losses)
    assert not scheduler.down
    (ticket,) = scheduler.submit_all([asked])
    with pytest.raises(DeviceLostError, match="CUDA failure 700") as failed:
        ticket.result(PATIENT)
    assert (failed.value.status, failed.value.code) == (503, "decoder_lost")
    wait_until(lambda: scheduler.down)
    assert losses.count == 1
    (ticket,) = scheduler.submit_all([asked])
    ticket.result(PATIENT)
    wait_until(lambda: not scheduler.down)  # since it has decoded again
    scheduler.close(PATIENT)


def test_a_server_is_not_ready_without_the_gpu_of_a_model() -> None:
    registry = Registry(Settings())
    lost, translator = Gpu(), EchoTranslator("a-de-en")
    registry.start([translator, EchoTranslator("b-de-en")])
    registry.check_ready()
    translator.stepper.step = lost.watch(translator.stepper.step)  # type: ignore[method-assign]
    model = registry.choose("de", "en", "a-de-en")
    with pytest.raises(DeviceLostError):
        model.scheduler.submit(Request(text="abc")).result(PATIENT)
    wait_until(lambda: not registry.ready)
    with pytest.raises(NotReadyError, match="'a-de-en' cannot decode"):
        registry.check_ready()
    other = registry.choose("de", "en", "b-de-en").scheduler  # what still comes is served
    assert other.submit(Request(text="abc")).result(PATIENT).translation.text == "abc"
    registry.close()
