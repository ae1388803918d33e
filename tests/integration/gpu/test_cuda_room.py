"""What did not fit a recorded GPU's memory gives back what it held, at once and all of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from serving.errors import DeviceMemoryError
from serving.generation.running import RunningPrompts
from serving.generation.ticket import GenerationRequest
from serving.generation.work import PromptTask
from serving.runtime.gpu import cuda_session
from serving.runtime.gpu.cuda_device import _open
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.search.sampling_options import GenerationOptions
from serving.translation.running import RunningBatches
from tests.integration.decoding.test_language_decoding import random_ids
from tests.integration.export.test_bundle import random_sentences
from tests.integration.gpu.test_cuda_graphs import LANGUAGE, write
from tests.integration.gpu.test_cuda_session import stepper_of
from tests.recorded_device import CUDA_SHORT, Recorded, recorded_gpu
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.generation.fake_generator import FakeGenerator

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def short_of_rows(gpu: Recorded) -> None:
    gpu.most_rows = 2


def short_of_bytes(gpu: Recorded) -> None:
    gpu.room = 0


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("short", [short_of_rows, short_of_bytes])
def test_translations_that_did_not_fit_hold_no_memory(
    tmp_path: Path, gpu: Recorded, short: Callable[[Recorded], None], joins: bool
) -> None:
    stepper = stepper_of(write(tmp_path, "macaron", "cuda", "fp16"), "cuda")
    engine = EchoTranslator(stepper=stepper).engine()
    options = SearchOptions(beam_size=4, max_length=40, min_length=30, loop_guard=False)
    sources = [sentence.source for sentence in random_sentences(8)]
    engine.join({number: Sentence(source, options) for number, source in enumerate(sources)})
    for _ in range(6):
        engine.step()
    short(gpu)
    if joins:
        prefixed = Sentence(sources[0], options, target_prefix=[5, 6, 7])
        engine.join(dict.fromkeys(range(10, 20), prefixed))
    check_nothing_is_held(gpu, engine)


def check_nothing_is_held(gpu: Recorded, engine: RunningBatches | RunningPrompts) -> None:
    """Decode until something does not fit, and start again as a scheduler does. The garbage
    collector then finds none of the GPU's memory."""
    while True:
        try:
            failed = [error for _, error in engine.step().failed]
            if failed:
                raise failed[0]
        except DeviceMemoryError:
            break
    del failed
    engine.restart()
    held = gpu.live_bytes
    gc.collect()
    assert gpu.live_bytes == held


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("beam_size", [1, 3])
def test_prompts_that_did_not_fit_hold_no_memory(
    tmp_path: Path, gpu: Recorded, beam_size: int
) -> None:
    stepper = stepper_of(write(tmp_path, LANGUAGE[0], "cuda", "fp16"), "cuda")
    engine = RunningPrompts(FakeGenerator().prompts, stepper)
    options = GenerationOptions(max_length=80, beam_size=beam_size)
    request = GenerationRequest(prompt="", options=options)
    engine.join({n: PromptTask(request, random_ids(9, n), seed=n) for n in range(6)})
    for _ in range(6):
        engine.step()
    gpu.room = 0
    for number in range(6, 9):
        engine.join({number: PromptTask(request, random_ids(90), seed=1)})
    check_nothing_is_held(gpu, engine)


def test_buffers_are_freed_with_the_bindings_that_use_them(
    tmp_path: Path, gpu: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_session, "MOST_BINDINGS", 2)
    monkeypatch.setattr(cuda_session, "MOST_GRAPHS", 0)
    stepper = stepper_of(write(tmp_path, "macaron", "cuda", "fp16"), "cuda")

    def held_after(counts: Iterable[int]) -> int:
        """Bytes of the buffers after searches of so many sentences, without any unused blocks."""
        for count in counts:
            decode(stepper, random_sentences(count))
        with pytest.raises(DeviceMemoryError):
            _open().mover.with_room(lambda: gpu.refuse(CUDA_SHORT))
        return gpu.live_bytes

    few = held_after([4])
    assert held_after([*range(1, 24), 4]) == few


def test_memory_that_is_short_for_the_sources_of_an_encoder_is_made(
    tmp_path: Path, gpu: Recorded
) -> None:
    stepper = stepper_of(write(tmp_path, "macaron", "cuda", "fp16"), "cuda")
    sources = [sentence.source for sentence in random_sentences(8)]
    states = [stepper.encode(sources[:count]) for count in (8, 2)]
    for state in states:
        stepper.free(state)
    gpu.room = gpu.live_bytes  # enough for the encoded sources, not for those on the host
    state = stepper.encode(sources)
    assert gpu.refused
    stepper.free(state)
