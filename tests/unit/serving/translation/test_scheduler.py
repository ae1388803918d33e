"""The scheduler over a fake model: order, batching, ends of every kind, and no lost ticket."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from serving.errors import (
    CancelledError,
    DeadlineExceededError,
    DecodingError,
    InvalidTextError,
    OverloadedError,
)
from serving.queue.limits import BatchLimits
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import SearchOptions
from serving.translation.results import SentenceOutcome, Translation
from serving.translation.running import JOIN_EVERY
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request, TranslationTicket
from serving.translation.translator import Wishes
from tests.unit.serving.echo import POISON, EchoStepper, EchoTranslator, wait_until
from tests.unit.serving.search.fake_stepper import FakeModel, FakeState, FakeStepper

PATIENT = 60.0


class TickStepper(EchoStepper):
    """Each step waits for a tick; `free_running` ends the waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks = threading.Semaphore(0)
        self.free_running = False
        self.encoded: list[int] = []
        """Sentences of each call of the encoder."""

    def encode(self, sources: Sequence[Sequence[int]]) -> FakeState:
        """Empty caches."""
        self.encoded.append(len(sources))
        return super().encode(sources)

    def tick(self, count: int = 1) -> None:
        """Let some steps happen and wait for them; results may still be on the way."""
        wanted = self.steps + count
        self.ticks.release(count)
        wait_until(lambda: self.steps >= wanted)

    def run_freely(self) -> None:
        """Wait for no more ticks."""
        self.free_running = True
        self.ticks.release()

    def step(self, *arguments: Any, **options: Any) -> Any:
        """One step."""
        if not self.free_running:
            assert self.ticks.acquire(timeout=PATIENT)
        return super().step(*arguments, **options)


class TickTranslator(EchoTranslator):
    """The echo at the pace of ticks."""

    def __init__(self) -> None:
        super().__init__(stepper=TickStepper())


class RandomTranslator(EchoTranslator):
    """Outputs that depend on every slot of the cache that is seen."""

    def __init__(self) -> None:
        super().__init__(stepper=FakeStepper(FakeModel(vocab_size=260, eos_bias=3.0)))


@pytest.fixture
def translator() -> Iterator[TickTranslator]:
    translator = TickTranslator()
    yield translator
    translator.stepper.run_freely()


@pytest.fixture
def scheduler(translator: TickTranslator) -> Iterator[TranslationScheduler]:
    scheduler = TranslationScheduler(translator, max_queue=4)
    yield scheduler
    translator.stepper.run_freely()
    scheduler.close(PATIENT)


def request(
    text: str, beam_size: int = 2, *, min_length: int = 0, timeout_s: float | None = None
) -> Request:
    options = SearchOptions(beam_size=beam_size, min_length=min_length)
    return Request(text=text, options=options, timeout_s=timeout_s)


def text_of(ticket: TranslationTicket) -> str:
    return ticket.result(PATIENT).translation.text


def begin(
    scheduler: TranslationScheduler, *texts: str, beam_size: int = 2
) -> list[TranslationTicket]:
    """Submit together and wait until they are taken into a batch."""
    tickets = scheduler.submit_all([request(text, beam_size) for text in texts])
    wait_until(lambda: scheduler.queue_depth == 0)
    return tickets


def test_requests_join_the_running_batch_of_their_beam_size(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    (first,) = begin(scheduler, "first one")
    mixed = [("b2", 2), ("c3", 3), ("d2", 2), ("e3", 3)]
    tickets = [scheduler.submit(request(text, beam_size)) for text, beam_size in mixed]
    translator.stepper.run_freely()
    assert [text_of(ticket) for ticket in tickets] == ["b2", "c3", "d2", "e3"]
    assert text_of(first) == "first one"
    assert [ticket.result().timing.batch_size for ticket in (first, *tickets)] == [1, 3, 2, 3, 2]
    assert sorted(translator.stepper.encoded) == [1, 2, 2]


def test_a_batch_is_joined_every_few_steps_only(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    (long,) = begin(scheduler, "abcdefghijklmnop")
    scheduler.submit(request("b"))
    translator.stepper.tick(JOIN_EVERY - 1)
    assert scheduler.queue_depth == 1
    translator.stepper.tick(2)
    assert scheduler.queue_depth == 0
    assert not long.done


def test_a_sentence_finds_the_same_alone_and_in_company() -> None:
    """Joins, and cache rows that others leave, at random."""
    rng = random.Random(4)
    translator = RandomTranslator()
    texts = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 12))) for _ in range(150)]
    requests = [
        Request(
            text=text,
            target_prefix=rng.choice(["", "", "q", "qrs"]),
            options=SearchOptions(
                beam_size=rng.choice([1, 3, 3, 3]),
                coverage_penalty=rng.choice([0.0, 0.2]),
                no_repeat_ngram_size=rng.choice([0, 2]),
                max_length=rng.randint(5, 20),
                verify=False,  # as `translate_sentences` has it
            ),
        )
        for text in texts
    ]
    alone = [
        translator.translate_sentences(
            [r.text], r.options, wishes=Wishes(target_prefix=[r.target_prefix])
        )[0]
        for r in requests
    ]
    scheduler = TranslationScheduler(translator, limits=BatchLimits(max_rows=7))
    tickets = []
    for sent in requests:
        tickets.append(scheduler.submit(sent))
        if rng.random() < 0.3:
            time.sleep(0.003)
    assert [ticket.result(PATIENT).translation for ticket in tickets] == alone
    scheduler.close(PATIENT)


def test_options_of_one_batch_may_differ(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    begin(scheduler, "abcdefg", beam_size=4)
    options = [
        SearchOptions(beam_size=4, max_length=2, loop_guard=False),
        SearchOptions(beam_size=4, num_hypotheses=3),
        SearchOptions(beam_size=4, min_length=6),
    ]
    tickets = [scheduler.submit(Request(text="abcd", options=o)) for o in options]
    translator.stepper.run_freely()
    short, three, long = [ticket.result(PATIENT).translation for ticket in tickets]
    assert (short.text, short.warnings) == ("ab", ("max_length",))
    assert len(three.hypotheses) == 3
    assert len(long.hypotheses[0].tokens) >= 6
    assert tickets[0].result().timing.batch_size == 4


def test_a_large_sentence_is_overtaken_for_a_while_only(
    translator: TickTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.queue.decoder.MAX_OVERTAKEN_S", 0.05)
    scheduler = TranslationScheduler(translator, limits=BatchLimits(max_tokens=24))
    begin(scheduler, "abcdefghij")
    large = scheduler.submit(request("klmnopqrstuvwxyz"))
    small = scheduler.submit(request("b"))
    translator.stepper.tick(JOIN_EVERY + 1)
    wait_until(lambda: scheduler.queue_depth == 1)  # the small one has overtaken it
    time.sleep(0.06)
    last = scheduler.submit(request("c"))
    translator.stepper.run_freely()
    assert text_of(large) == "klmnopqrstuvwxyz"
    assert [text_of(small), text_of(last)] == ["b", "c"]
    starts = [t.submitted + t.result().timing.queue_s for t in (small, large, last)]
    assert starts == sorted(starts)
    scheduler.close(PATIENT)


def test_equal_requests_are_decoded_once(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    (running,) = begin(scheduler, "abcdef")
    again = scheduler.submit(request("abcdef"))  # beside one that runs
    waiting = scheduler.submit_all([request("xyz"), request("xyz")])
    third = scheduler.submit(request("xyz"))  # beside one that waits
    other = scheduler.submit(request("xyz", min_length=2))
    assert scheduler.queue_depth == 2
    translator.stepper.run_freely()
    assert [text_of(t) for t in (running, again)] == ["abcdef"] * 2
    assert [text_of(t) for t in (*waiting, third, other)] == ["xyz"] * 4
    assert sum(translator.stepper.encoded) == 3
    assert again.result().timing.queue_s >= 0.0


def test_one_of_several_equal_requests_may_be_cancelled(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    (first,) = begin(scheduler, "abcdef")
    second = scheduler.submit(request("abcdef"))
    late = scheduler.submit(request("abcdef", timeout_s=0.0))
    first.cancel()
    translator.stepper.tick(2)
    with pytest.raises(DeadlineExceededError):
        late.result(PATIENT)
    assert not second.done
    translator.stepper.run_freely()
    assert text_of(second) == "abcdef"
    again = scheduler.submit(request("abcdef"))  # which is over by now
    assert text_of(again) == "abcdef"


def test_a_text_over_the_budget_runs_alone(translator: TickTranslator) -> None:
    scheduler = TranslationScheduler(translator, limits=BatchLimits(max_tokens=4))
    translator.stepper.run_freely()
    assert text_of(scheduler.submit(request("longer than that"))) == "longer than that"
    scheduler.close(PATIENT)


def test_a_finished_sentence_is_delivered_before_its_batch_ends(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    short, long = begin(scheduler, "a", "abcdefghij")
    translator.stepper.tick(4)
    assert text_of(short) == "a"
    assert not long.done
    translator.stepper.run_freely()
    assert text_of(long) == "abcdefghij"


def test_a_blank_text_needs_no_decoding(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    completed = scheduler.submit(request(" \n ")).result(0)
    assert completed.translation == Translation("")
    assert translator.stepper.states == []


def test_bad_text_is_refused_at_once_and_with_it_the_whole_list(
    scheduler: TranslationScheduler,
) -> None:
    with pytest.raises(InvalidTextError):
        scheduler.submit_all([request("good"), request("b\0d")])
    assert scheduler.queue_depth == 0


def test_cancelling_a_running_request_frees_its_row(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    long, other = begin(scheduler, "abcdefghijklmnop", "abc")
    translator.stepper.tick(2)
    long.cancel()
    with pytest.raises(CancelledError):
        long.result(0)
    translator.stepper.run_freely()
    assert text_of(other) == "abc"
    wait_until(lambda: translator.stepper.states[0].freed)
    assert translator.stepper.steps < 16


def test_cancelling_all_ends_the_batch(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    tickets = begin(scheduler, "abcdefghijklmnop", "abcdefghijklmnop")
    for ticket in tickets:
        ticket.cancel()
    translator.stepper.tick()
    wait_until(lambda: translator.stepper.states[0].freed)
    translator.stepper.run_freely()
    assert text_of(scheduler.submit(request("next"))) == "next"


def test_a_deadline_ends_running_and_waiting_requests(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    (running,) = begin(scheduler, "abcdefghijklmnop")
    overdue = scheduler.submit(request("late", timeout_s=0.0))
    patient = scheduler.submit(request("in time", timeout_s=PATIENT))
    translator.stepper.tick()
    with pytest.raises(DeadlineExceededError):
        overdue.result(PATIENT)
    assert not running.done
    assert scheduler.queue_depth == 1
    running.deadline = 0.0
    translator.stepper.tick()
    with pytest.raises(DeadlineExceededError):
        running.result(PATIENT)
    translator.stepper.run_freely()
    assert text_of(patient) == "in time"


def test_a_full_queue_refuses_and_cancelled_requests_make_room(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    begin(scheduler, "abc")
    tickets = [scheduler.submit(request(text)) for text in "wxyz"]
    with pytest.raises(OverloadedError, match="at most 4 sentences and has 4"):
        scheduler.submit(request("fifth"))
    tickets[1].cancel()
    with pytest.raises(OverloadedError):  # all or none
        scheduler.submit_all([request("fifth"), request("sixth")])
    fifth = scheduler.submit(request("fifth"))
    translator.stepper.run_freely()
    assert [text_of(t) for t in (tickets[0], *tickets[2:], fifth)] == ["w", "y", "z", "fifth"]


def test_close_finishes_what_was_accepted(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    tickets = [*begin(scheduler, "abc"), scheduler.submit(request("waiting", beam_size=3))]
    closing = threading.Thread(target=scheduler.close)
    closing.start()

    def refused() -> bool:
        try:
            scheduler.submit(request("too late", timeout_s=0.0))
        except OverloadedError as error:
            return "shutting down" in str(error)
        return False

    wait_until(refused)
    translator.stepper.run_freely()
    closing.join(PATIENT)
    assert not closing.is_alive()
    assert [text_of(ticket) for ticket in tickets] == ["abc", "waiting"]
    scheduler.close(PATIENT)


def test_a_failing_batch_fails_alone(
    scheduler: TranslationScheduler, translator: TickTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("out of memory")

    short, long = begin(scheduler, "a", "abcdefghij")
    waiting = scheduler.submit(request("later"))
    translator.stepper.tick(4)
    assert text_of(short) == "a"
    with monkeypatch.context() as patch:
        patch.setattr(translator.stepper, "step", fail)
        translator.stepper.ticks.release()  # the step that waits is the last good one
        with pytest.raises(RuntimeError, match="out of memory"):
            long.result(PATIENT)
        with pytest.raises(RuntimeError, match="out of memory"):
            waiting.result(PATIENT)
    translator.stepper.run_freely()
    assert text_of(short) == "a"
    assert text_of(scheduler.submit(request("after"))) == "after"


def test_a_sentence_whose_model_or_text_fails_fails_alone(
    scheduler: TranslationScheduler, translator: TickTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = translator.texts.complete

    def fragile(sentence: Sentence, finished: Finished) -> SentenceOutcome:
        if len(sentence.source) == 5:
            raise ValueError("no such piece")
        return complete(sentence, finished)

    monkeypatch.setattr(translator.texts, "complete", fragile)
    good, poisoned, fragile_one, longer = begin(scheduler, "ab", POISON, "abcd", "abcdef")
    translator.stepper.run_freely()
    with pytest.raises(ValueError, match="no such piece"):
        fragile_one.result(PATIENT)
    with pytest.raises(DecodingError):
        poisoned.result(PATIENT)
    assert [text_of(good), text_of(longer)] == ["ab", "abcdef"]


def test_a_loop_is_decoded_again(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    looping, other = begin(scheduler, "a" * 12, "abcdef")
    translator.stepper.run_freely()
    assert looping.result(PATIENT).translation.warnings[0] == "repetition"
    assert text_of(other) == "abcdef"


def test_a_looping_sentence_outlives_the_batch_that_it_left(
    scheduler: TranslationScheduler, translator: TickTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.translation.running.JOIN_EVERY", 1000)
    looping, long = begin(scheduler, "a" * 8, "abcdefghijklmnopqrstuvwxyz")
    wait_until(lambda: translator.stepper.ticks.release() or scheduler.queue_depth == 1)

    def fail(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        raise RuntimeError("out of memory")

    monkeypatch.setattr(translator.stepper, "step", fail)
    translator.stepper.run_freely()
    with pytest.raises(RuntimeError, match="out of memory"):
        long.result(PATIENT)
    assert looping.result(PATIENT).translation.warnings[0] == "repetition"


def test_events_end_with_the_translation_and_leaving_them_cancels_nothing(
    scheduler: TranslationScheduler, translator: TickTranslator
) -> None:
    async def listen(ticket: TranslationTicket) -> list[str]:
        return [event.translation.text async for event in ticket.events()]

    async def leave(ticket: TranslationTicket) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(listen(ticket), 0.01)

    (ticket,) = begin(scheduler, "abc")
    asyncio.run(leave(ticket))
    assert not ticket.done
    translator.stepper.run_freely()
    assert asyncio.run(listen(ticket)) == ["abc"]
