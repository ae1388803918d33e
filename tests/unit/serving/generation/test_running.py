"""In what order prompts are read, a chunk between two steps, and what frees those that leave."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from serving.generation.running import RunningPrompts
from serving.generation.ticket import Delta, GenerationRequest
from serving.generation.work import PromptTask
from serving.search.sampling.prompts import CHUNK
from serving.search.sampling_options import GenerationOptions
from tests.unit.serving.generation.fake_generator import FakeGenerator

LONG = 20


def task(generator: FakeGenerator, chunks: int) -> PromptTask:
    """A prompt of so many chunks, to go on from with a token."""
    request = GenerationRequest(
        prompt="a" * (CHUNK * chunks - 1), options=GenerationOptions(max_length=1)
    )
    return PromptTask(request, generator.prompts.encode(request.prompt), seed=1)


def first_tokens(engine: RunningPrompts, steps: int) -> dict[int, int]:
    """After how many steps each prompt had its first token, of so many."""
    found: dict[int, int] = {}
    for step in range(1, steps + 1):
        for number, news in engine.step().news:
            if isinstance(news, Delta):
                found.setdefault(number, step)
    return found


def test_a_short_prompt_does_not_wait_for_the_end_of_a_long_one() -> None:
    generator = FakeGenerator()
    engine = generator.engine()
    engine.join({0: task(generator, LONG)})
    engine.step()
    engine.join({1: task(generator, 1)})
    found = first_tokens(engine, LONG + 10)
    assert found[1] <= 5
    assert found[0] <= LONG + 5


def test_a_long_prompt_is_read_though_short_ones_come_all_the_time() -> None:
    generator = FakeGenerator()
    engine = generator.engine()
    engine.join({0: task(generator, LONG)})
    found: dict[int, int] = {}
    for number in range(1, 3 * LONG):
        engine.join({number: task(generator, 1)})
        if 0 in first_tokens(engine, 1):
            found[0] = number
    assert found[0] <= 2 * LONG + 4


def test_of_prompts_of_one_length_the_first_is_read_first() -> None:
    generator = FakeGenerator()
    engine = generator.engine()
    for number in range(3):
        engine.join({number: task(generator, 4)})
    found = first_tokens(engine, 20)
    assert found[0] < found[1] < found[2]
    assert found[0] <= 6


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No garbage is collected: what is freed has been freed by who held it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_what_was_read_for_those_that_left_is_freed_at_the_next_step() -> None:
    generator = FakeGenerator()
    engine = generator.engine()
    engine.join({0: task(generator, 4)})
    engine.step()
    engine.join({1: task(generator, 1)})
    engine.cancel([0])
    found = first_tokens(engine, 4)
    assert found.keys() == {1}
    assert generator.stepper.given_up == 1


@pytest.mark.usefixtures("no_collection")
def test_the_end_frees_what_is_being_read() -> None:
    generator = FakeGenerator()
    engine = generator.engine()
    engine.join({0: task(generator, 4), 1: task(generator, 2)})
    engine.step()
    engine.step()
    engine.close()
    assert generator.stepper.given_up == 2
