"""What does not fit a device's memory is decoded in smaller batches, whatever the task; its clients
see nothing of that but time."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serving.bundle.encoder_tokenizer import EncodedText
from serving.encoding.scheduler import TextEngine, TextScheduler
from serving.errors import DecoderLostError, DeviceMemoryError
from serving.generation.scheduler import GenerationScheduler
from serving.generation.ticket import Delta, GenerationRequest
from serving.processes.loop import portable
from serving.queue import decoder
from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from serving.search.sampling_options import GenerationOptions
from serving.translation.offline import decode_in_batches
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.generation.fake_generator import FakeGenerator

PATIENT = 60.0
TEXTS = ["abcdefghijklmnopqrstuvwxyz"[n : n + 3 + n % 5] for n in range(12)]


class Device:
    """Holds so many rows at once; `rows` are those of each step that was tried."""

    def __init__(self, holds: int, steps_before: int = 0) -> None:
        """The first `steps_before` steps have room for any."""
        self.holds, self._before = holds, steps_before
        self.rows: list[int] = []

    def check(self, rows: int) -> None:
        self.rows.append(rows)
        if len(self.rows) > self._before and rows > self.holds:
            raise DeviceMemoryError("the GPU has too little memory: out of memory")

    def watch(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A stepper's method, which computes on the device."""

        def watched(state: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            self.check(len(inputs.token_ids_BQ))
            return step(state, inputs, *arguments, **named)

        return watched


def translations(device: Device, requests: Sequence[Request], **limits: int) -> list[Any]:
    translator = EchoTranslator()
    translator.stepper.step = device.watch(translator.stepper.step)  # type: ignore[method-assign]
    scheduler = TranslationScheduler(translator, limits=BatchLimits(**limits))
    tickets = scheduler.submit_all(requests)
    try:
        return [ticket.result(PATIENT).translation for ticket in tickets]
    finally:
        scheduler.close(PATIENT)


def requests(texts: Sequence[str] = TEXTS) -> list[Request]:
    return [Request(text=text, stream=True) for text in texts]


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_batch_of_translations_is_halved_until_it_fits(steps_before: int) -> None:
    device = Device(4, steps_before)
    assert [each.text for each in translations(device, requests())] == TEXTS
    fitting = [rows for rows in device.rows if rows <= 4]
    tried = [rows for rows in device.rows[steps_before:] if rows > 4]
    assert sorted(tried, reverse=True) == tried  # none is tried again
    assert len(tried) <= 2
    assert max(fitting) == 3  # a quarter of twelve


def test_batches_of_two_beam_sizes_share_the_rows_that_fit() -> None:
    device = Device(2)
    both = [
        Request(text=text, options=SearchOptions(beam_size=1 + n % 2))
        for n, text in enumerate(TEXTS)
    ]
    assert [each.text for each in translations(device, both)] == TEXTS


def test_a_request_that_does_not_fit_alone_says_what_to_lower() -> None:
    said = r"alone .*lower MACARON_MAX_BATCH_TOKENS"
    with pytest.raises(DeviceMemoryError, match=said) as caught:
        translations(Device(0), [Request(text="abc")])
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    with pytest.raises(DeviceMemoryError, match="alone"):  # with others, these once they are alone
        translations(Device(0), requests())


def test_the_error_of_another_process_is_the_same() -> None:
    told = pickle.loads(pickle.dumps(portable(DeviceMemoryError("out of memory"))))
    assert type(told) is DeviceMemoryError
    assert str(told) == "out of memory"


def test_of_a_device_that_fails_in_another_way_nothing_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(4)
    monkeypatch.setattr(device, "check", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        translations(device, requests())


def test_what_a_stream_has_sent_of_a_translation_is_not_sent_again() -> None:
    translator = EchoTranslator()
    device = Device(1, steps_before=4)
    translator.stepper.step = device.watch(translator.stepper.step)  # type: ignore[method-assign]
    scheduler = TranslationScheduler(translator)
    texts = ["abcdefghij", "klmnopqrst"]

    async def follow() -> None:
        for ticket, text in zip(scheduler.submit_all(requests(texts)), texts, strict=True):
            *events, done = [event async for event in ticket.events()]
            told = [event.text for event in events]
            assert told == sorted(set(told), key=len)
            assert all(text.startswith(part) for part in told)
            assert done.translation.text == text

    asyncio.run(follow())
    assert max(device.rows) == 2
    scheduler.close(PATIENT)


def prompts() -> list[GenerationRequest]:
    """Sampled outputs, with seeds and without, of several choices, and a beam search."""
    sampled = [
        GenerationRequest(prompt=text, options=GenerationOptions(max_length=8, seed=seed))
        for seed, text in enumerate(TEXTS[:5])
    ]
    choices = GenerationOptions(max_length=8, num_hypotheses=2, seed=3)
    beam = GenerationOptions(max_length=5, beam_size=2)
    unseeded = GenerationOptions(max_length=8)
    others = [
        GenerationRequest(prompt="others", options=each) for each in (choices, beam, unseeded)
    ]
    return [*sampled, *others]


async def told_of(scheduler: GenerationScheduler) -> list[tuple[Any, list[Any]]]:
    """The outcome of each prompt, and what was told of it before."""
    found = []
    for ticket in scheduler.submit_all(prompts()):
        *events, _ = [event async for event in ticket.events()]
        found.append((ticket.result(PATIENT), events))
    scheduler.close(PATIENT)
    return found


def test_outputs_of_language_models_are_reported_once_and_come_out_the_same() -> None:
    wanted = asyncio.run(told_of(GenerationScheduler(FakeGenerator())))
    generator, device = FakeGenerator(), Device(4, steps_before=3)
    generator.stepper.next = device.watch(generator.stepper.next)
    found = asyncio.run(told_of(GenerationScheduler(generator)))
    assert found[:-1] == wanted[:-1]
    assert max(device.rows[:3]) > 4 >= max(device.rows[5:])
    done, events = found[-1]  # of a seed of its own, which is the same both times
    told = "".join(event.text for event in events if isinstance(event, Delta))
    assert told == done.choices[0].text


def test_a_stream_is_not_continued_by_another_text() -> None:
    """On a GPU, another batch may give another text."""
    asked = [
        GenerationRequest(
            prompt=text, options=GenerationOptions(max_length=8, temperature=0.0, min_length=8)
        )
        for text in ("abc", "def")
    ]
    alone = GenerationScheduler(FakeGenerator())
    wanted = [ticket.result(PATIENT).choices[0] for ticket in alone.submit_all(asked)]
    alone.close(PATIENT)
    generator, device = FakeGenerator(), Device(1, steps_before=3)
    model, logits = generator.stepper.model, generator.stepper.model.logits
    model.logits = lambda *given: np.roll(logits(*given), int(len(device.rows) > 4))
    generator.stepper.next = device.watch(generator.stepper.next)
    scheduler = GenerationScheduler(generator)

    async def follow(ticket: Any) -> list[int]:
        told: list[int] = []
        with pytest.raises(DecoderLostError, match="does not go on from what was sent"):
            await note(ticket, told)
        return told

    async def note(ticket: Any, told: list[int]) -> None:
        async for event in ticket.events():
            if isinstance(event, Delta):
                told += [token.token_id for token in event.tokens]

    async def follow_all() -> list[tuple[Any, list[int]]]:
        tickets = scheduler.submit_all(asked)
        return list(zip(tickets, await asyncio.gather(*map(follow, tickets)), strict=True))

    for (ticket, told), first in zip(asyncio.run(follow_all()), wanted, strict=True):
        ids = [token.token_id for token in first.tokens]
        assert told == ids[: len(told)]
        assert len(told) <= 3
        (choice,) = ticket.result(PATIENT).choices  # whole, for those who wait for it alone
        assert [token.token_id for token in choice.tokens[:3]] != ids[:3]
        assert len(choice.tokens) == 8
    scheduler.close(PATIENT)


def test_texts_of_an_encoder_are_read_in_halves() -> None:
    device = Device(3)

    def run(texts: Sequence[EncodedText]) -> np.ndarray:
        device.check(len(texts))
        return np.array([[float(len(text.ids))] for text in texts], np.float32)

    encoder: Any = SimpleNamespace(run=run)
    scheduler = TextScheduler(SimpleNamespace(engine=lambda: TextEngine(encoder)))
    texts = [EncodedText(ids=[5] * n, segments=[0] * n) for n in range(1, 9)]
    tickets = scheduler.submit_all(texts)
    assert [ticket.result(PATIENT).tolist() for ticket in tickets] == [[n] for n in range(1, 9)]
    assert max(rows for rows in device.rows if rows <= 3) == 2
    scheduler.close(PATIENT)


def test_more_rows_are_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "FEWER_S", 0.5)
    device, translator = Device(3), EchoTranslator()
    translator.stepper.step = device.watch(translator.stepper.step)  # type: ignore[method-assign]
    scheduler = TranslationScheduler(translator, limits=BatchLimits(max_rows=8))
    most = []
    for pause_s in (0.0, 0.6):
        time.sleep(pause_s)
        device.rows.clear()
        tickets = scheduler.submit_all(requests())
        assert [ticket.result(PATIENT).translation.text for ticket in tickets] == TEXTS
        most.append(max(device.rows))
    assert most == [8, 8]
    scheduler.close(PATIENT)


def test_a_list_of_sentences_is_decoded_in_halves() -> None:
    translator = EchoTranslator()
    sentences = {n: translator.texts.prepare(Request(text=text)) for n, text in enumerate(TEXTS)}
    wanted = dict(decode_in_batches(translator.stepper, sentences))  # type: ignore[arg-type]
    device = Device(5)
    translator.stepper.step = device.watch(translator.stepper.step)  # type: ignore[method-assign]
    found = dict(decode_in_batches(translator.stepper, sentences))  # type: ignore[arg-type]
    assert [found[n].hypotheses for n in found] == [wanted[n].hypotheses for n in found]
    assert found.keys() == wanted.keys()
    assert [rows for rows in device.rows if rows > 5] == [12, 6, 6]
    device.holds = 0
    with pytest.raises(DeviceMemoryError):
        list(decode_in_batches(translator.stepper, sentences))  # type: ignore[arg-type]
