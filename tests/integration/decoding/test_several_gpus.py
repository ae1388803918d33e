"""A process for each GPU behind one queue; the GPUs are names that processes of the CPU are
given."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.encoding.reader import TextReader
from serving.encoding.scheduler import TextScheduler
from serving.errors import OverloadedError, ServingError, TooLongError
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import Delta, GenerationRequest, GenerationTicket
from serving.processes import group
from serving.processes.generator import IsolatedGenerator
from serving.processes.group import Loader, ProcessGroup
from serving.processes.isolated import IsolatedEngine
from serving.processes.reader import IsolatedReader
from serving.processes.translator import IsolatedTranslator
from serving.queue.limits import BatchLimits, Demand
from serving.search.options import Group
from serving.search.sampling_options import GenerationOptions
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request, TranslationTicket
from serving.translation.translator import Translator
from tests.integration.demo import MODELS
from tests.unit.serving.echo import wait_until

BUNDLE = MODELS / "macaron-de-en"
LANGUAGE_MODEL = MODELS / "lm-cascade"
ENCODER = MODELS / "embedder"
TEXTS = [f"Das ist Haus Nummer {n}, und es regnet." for n in range(24)]
PATIENT = 60.0
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")


PROMPTS = ["The film was", "He said", "In 1998 the", "", "A long time ago", "She"] * 3
SAMPLED = GenerationOptions(
    max_length=24, temperature=1.0, num_hypotheses=2, seed=7, num_logprobs=2
)


class LanguageModelOnTwoGpus(IsolatedGenerator):
    """Remembers its engines."""

    def __init__(self) -> None:
        super().__init__(LANGUAGE_MODEL, ProcessGroup(2, forks=False, gpus=["3", "GPU-b"]))
        self.engines: list[IsolatedEngine[Any, Any, Any]] = []

    def engine(self) -> IsolatedEngine[Any, Any, Any]:
        self.engines.append(super().engine())
        return self.engines[-1]


class OnTwoGpus(IsolatedTranslator):
    """Remembers its engines."""

    def __init__(self) -> None:
        self.group = ProcessGroup(2, forks=False, gpus=["3", "GPU-b"])
        super().__init__(BUNDLE, processes=self.group)
        self.engines: list[IsolatedEngine[Any, Any, Any]] = []

    def engine(self) -> IsolatedEngine[Any, Any, Any]:
        self.engines.append(super().engine())
        return self.engines[-1]


def shown(pid: int) -> str:
    """The GPUs that a process sees."""
    told = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in told if "=" in line)["CUDA_VISIBLE_DEVICES"]


class EncoderOnTwoGpus(IsolatedReader):
    """Remembers its engines."""

    def __init__(self) -> None:
        super().__init__(ENCODER, ProcessGroup(2, forks=False, gpus=["3", "GPU-b"]))
        self.engines: list[IsolatedEngine[Any, Any, Any]] = []

    def engine(self) -> IsolatedEngine[Any, Any, Any]:
        self.engines.append(super().engine())
        return self.engines[-1]


@pytest.fixture
def translator() -> OnTwoGpus:
    return OnTwoGpus()


@pytest.fixture
def scheduler(translator: OnTwoGpus) -> Iterator[TranslationScheduler]:
    scheduler = TranslationScheduler(translator, workers=translator.workers)
    yield scheduler
    scheduler.close(PATIENT)


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    return [found.text for found in Translator(BUNDLE, threads=1).translate(TEXTS)]


def answers(scheduler: TranslationScheduler) -> list[str]:
    tickets = scheduler.submit_all([Request(text=text) for text in TEXTS])
    return [ticket.result(PATIENT).translation.text for ticket in tickets]


def test_each_process_sees_a_gpu_of_its_own_and_keeps_it(
    translator: OnTwoGpus, scheduler: TranslationScheduler, wanted: list[str]
) -> None:
    assert translator.device.reason.endswith(", each of 2 GPUs")
    assert answers(scheduler) == wanted
    assert [shown(engine.pid) for engine in translator.engines] == ["3", "GPU-b"]
    before = translator.engines[0].pid
    os.kill(before, signal.SIGKILL)
    assert answers(scheduler) == wanted
    wait_until(lambda: not translator.engines[0].lost)
    assert translator.engines[0].pid != before
    assert [shown(engine.pid) for engine in translator.engines] == ["3", "GPU-b"]


def test_a_text_may_take_all_the_memory_of_a_gpu() -> None:
    for group_of_two, fits in (
        (ProcessGroup(2, forks=False, gpus=["0", "1"]), True),
        (ProcessGroup(2, forks=True), False),
    ):
        limits = BatchLimits(max_cache_bytes=2**24)
        translator = IsolatedTranslator(BUNDLE, processes=group_of_two, limits=limits)
        assert translator.device.count == group_of_two.devices == (2 if fits else 1)
        sizes, asked = translator.texts.sizes, Demand(Group(5, shortlisted=False), 20, 1)
        while sizes.cache_bytes(1, 20, asked.slots) <= 2**23:
            asked = replace(asked, slots=asked.slots + 8)
        with nullcontext() if fits else pytest.raises(TooLongError):
            translator.texts.check_memory(asked)
        group_of_two.close()


def test_a_gpu_that_is_lost_does_not_end_what_is_decoded(
    translator: OnTwoGpus,
    scheduler: TranslationScheduler,
    wanted: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serving.queue.decoder._RETRY_S", 0.2)
    lost: list[Any] = []

    class Without(Loader):
        def __init__(self, *, forks: bool, gpu: str | None = None) -> None:
            if gpu == "3" and len(lost) < 5:
                lost.append(gpu)
                raise OSError("no CUDA device")
            super().__init__(forks=forks, gpu=gpu)

    assert answers(scheduler) == wanted
    monkeypatch.setattr(group, "Loader", Without)
    tickets = scheduler.submit_all([Request(text=text) for text in TEXTS])
    wait_until(lambda: scheduler.queue_depth == 0)
    os.kill(translator.engines[0].pid, signal.SIGKILL)  # with what it decodes
    assert [ticket.result(PATIENT).translation.text for ticket in tickets] == wanted
    assert answers(scheduler) == wanted
    wait_until(lambda: not translator.engines[0].lost)  # it is there again
    assert len(lost) == 5
    assert answers(scheduler) == wanted


def test_a_process_without_its_gpu_ends_and_is_replaced(
    wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process decodes on one GPU fails from a step on, until there is another process."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        "from serving.errors import DeviceLostError\n"
        "from serving.search.beams.beam import BeamSearch\n"
        f"lost, step = pathlib.Path({str(tmp_path / 'lost')!r}), BeamSearch.step\n"
        "here = os.environ.get('CUDA_VISIBLE_DEVICES') == '3' and not lost.exists()\n"
        "def fail(self, *most):\n"
        "    if here and os.path.exists(lost.with_name('begin')):\n"
        "        lost.touch()\n"
        "        raise DeviceLostError('the GPU has failed (CUDA failure 700)')\n"
        "    return step(self, *most)\n"
        "BeamSearch.step = fail\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(MODELS.parent), str(tmp_path)]))
    translator = OnTwoGpus()
    scheduler = TranslationScheduler(translator, workers=translator.workers)
    assert answers(scheduler) == wanted
    before = [engine.pid for engine in translator.engines]
    (tmp_path / "begin").touch()
    assert answers(scheduler) == wanted
    assert (tmp_path / "lost").exists()
    wait_until(lambda: not translator.engines[0].lost)
    assert [engine.pid == pid for engine, pid in zip(translator.engines, before, strict=True)] == [
        False,
        True,
    ]
    assert not scheduler.down
    assert answers(scheduler) == wanted
    scheduler.close(PATIENT)


def test_texts_of_a_lost_gpu_that_no_other_can_load_fail_at_once_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in BUNDLE.iterdir():
        (tmp_path / file.name).symlink_to(file)
    started: list[str | None] = []

    class Counted(Loader):
        def __init__(self, *, forks: bool, gpu: str | None = None) -> None:
            started.append(gpu)
            super().__init__(forks=forks, gpu=gpu)

    processes = ProcessGroup(2, forks=False, gpus=["3", "GPU-b"])
    scheduler = TranslationScheduler(IsolatedTranslator(tmp_path, processes=processes), workers=2)
    monkeypatch.setattr(group, "Loader", Counted)
    lost = processes.link(0, 0)
    tickets = scheduler.submit_all([Request(text=text) for text in TEXTS])
    wait_until(lambda: len(lost.tasks) > 1)
    (tmp_path / "step.onnx").unlink()
    os.kill(lost.pid, signal.SIGKILL)
    failed = [error for error in (ticket_error(ticket) for ticket in tickets) if error]
    assert len(failed) > 1
    for error in failed:
        assert isinstance(error, OverloadedError)
        assert "decoding cannot continue" in str(error)
        assert "step.onnx" in str(error)
    assert started.count("GPU-b") == 1  # "3" is tried until it can load
    (tmp_path / "step.onnx").symlink_to(BUNDLE / "step.onnx")
    scheduler.close(PATIENT)


def ticket_error(ticket: TranslationTicket) -> BaseException | None:
    try:
        ticket.result(PATIENT)
    except ServingError as error:
        return error
    return None


@pytest.fixture
def generation() -> Iterator[tuple[LanguageModelOnTwoGpus, GenerationScheduler]]:
    model = LanguageModelOnTwoGpus()
    scheduler = GenerationScheduler(model, workers=model.workers)
    yield model, scheduler
    scheduler.close(PATIENT)


def continued(scheduler: GenerationScheduler, options: GenerationOptions) -> list[GenerationTicket]:
    """Prompts for the two processes, which are read one by one and not together."""
    requests = [GenerationRequest(prompt=each, options=options) for each in PROMPTS]
    return [scheduler.submit(request) for request in requests]


@pytest.mark.parametrize(
    "options", [SAMPLED, GenerationOptions(max_length=12, beam_size=3, num_hypotheses=2)]
)
def test_a_language_model_gives_the_same_on_several_gpus(
    generation: tuple[LanguageModelOnTwoGpus, GenerationScheduler], options: GenerationOptions
) -> None:
    model, scheduler = generation
    assert model.device.reason.endswith(", each of 2 GPUs")
    alone = Generator(LANGUAGE_MODEL, threads=1)
    wanted = [alone.generate(prompt, options)[0] for prompt in PROMPTS]
    tickets = continued(scheduler, options)
    assert [list(ticket.result(PATIENT).choices) for ticket in tickets] == wanted
    assert [shown(engine.pid) for engine in model.engines] == ["3", "GPU-b"]


def test_what_is_told_of_a_text_is_told_once_if_its_gpu_is_lost(
    generation: tuple[LanguageModelOnTwoGpus, GenerationScheduler],
) -> None:
    model, scheduler = generation
    options = replace(SAMPLED, num_hypotheses=1, max_length=160, min_length=160)
    tickets = continued(scheduler, options)
    wait_until(lambda: scheduler.queue_depth == 0)
    os.kill(model.engines[0].pid, signal.SIGKILL)  # with what it decodes
    wanted = Generator(LANGUAGE_MODEL, threads=1).generate(PROMPTS, options)
    for ticket, (choice,) in zip(tickets, wanted, strict=True):
        assert ticket.result(PATIENT).choices == (choice,)
        assert asyncio.run(streamed(ticket)) == choice.text


async def streamed(ticket: GenerationTicket) -> str:
    return "".join([event.text async for event in ticket.events() if isinstance(event, Delta)])


def test_an_encoder_gives_the_same_on_several_gpus_and_if_one_is_lost() -> None:
    model = EncoderOnTwoGpus()
    scheduler = TextScheduler(model, workers=model.workers)
    wanted = TextReader(ENCODER, threads=1).read(TEXTS)
    for lost in (False, True):
        tickets = [scheduler.submit_all([model.inputs.encode(text)])[0] for text in TEXTS]
        if lost:
            os.kill(model.engines[0].pid, signal.SIGKILL)
        found = [ticket.result(PATIENT) for ticket in tickets]
        np.testing.assert_array_equal(found, wanted)
    wait_until(lambda: not any(engine.lost for engine in model.engines))
    assert [shown(engine.pid) for engine in model.engines] == ["3", "GPU-b"]
    scheduler.close(PATIENT)
