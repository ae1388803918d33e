"""What the thread of an engine gives it and when, over engines that do as they are told."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from serving.errors import CancelledError, DecoderLostError
from serving.queue.decoder import BatchRoom
from serving.queue.engine import Progress
from serving.queue.limits import BatchLimits, Demand
from serving.search.beams.sentence import Sentence
from serving.search.options import Group, SearchOptions
from serving.translation.results import Done, TextHypothesis, Translation
from serving.translation.running import SentenceProgress
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, wait_until

PATIENT = 30.0
GROUP = Group(SearchOptions().beam_size, shortlisted=False)


class ToldEngine:
    """Decodes nothing; `tell` is what happens next."""

    def __init__(self) -> None:
        self.company = 0
        self.joined: list[int] = []
        self.cancelled: list[int] = []
        self.restarts, self.closed, self.lost = 0, False, False
        self.told = self.noted = self._taken = 0
        """Times that it was told something, and those of which its decoder has made a note."""
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def join(self, tasks: Mapping[int, Sentence]) -> None:
        self.joined += tasks

    def cancel(self, numbers: Iterable[int]) -> None:
        self.cancelled += numbers

    def step(self) -> SentenceProgress:
        self.noted = self._taken
        told = self._told.get()
        self._taken += 1
        if isinstance(told, DecoderLostError):
            raise told
        return told

    def wake(self) -> None:
        self.tell(Progress())

    def restart(self) -> None:
        self.restarts += 1
        self.lost = False

    def close(self) -> None:
        self.closed = True

    def tell(self, told: SentenceProgress | DecoderLostError) -> None:
        self.told += 1
        self._told.put(told)

    def finish(self) -> None:
        """All that has joined is done."""
        done = Done(Translation("done", (hypothesis(),)))
        self.tell(Progress(outcomes=[(number, done) for number in self.joined]))


def hypothesis() -> TextHypothesis:
    return TextHypothesis(
        text="done",
        score=-1.0,
        cumulative=-1.0,
        tokens=("done",),
        token_scores=(-1.0,),
        finished=True,
    )


class ToldTranslator(EchoTranslator):
    """Hands its engines out."""

    def __init__(self, *engines: ToldEngine) -> None:
        super().__init__()
        self.left = list(engines)

    def engine(self) -> ToldEngine:  # type: ignore[override]
        return self.left.pop(0)


@pytest.fixture
def engines() -> list[ToldEngine]:
    return [ToldEngine(), ToldEngine()]


@pytest.fixture
def scheduler(engines: list[ToldEngine]) -> Iterator[TranslationScheduler]:
    scheduler = TranslationScheduler(ToldTranslator(*engines), workers=2)
    yield scheduler
    for engine in engines:
        engine.finish()
    scheduler.close(PATIENT)
    assert all(engine.closed for engine in engines)


def requests(*texts: str) -> list[Request]:
    return [Request(text=text) for text in texts]


def begun(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> tuple[ToldEngine, ToldEngine]:
    """The engine with two sentences and that with one."""
    scheduler.submit_all(requests("a", "b", "c"))
    wait_until(lambda: sorted(len(engine.joined) for engine in engines) == [1, 2])
    one, two = sorted(engines, key=lambda engine: len(engine.joined))
    return two, one


def test_what_comes_joins_the_engine_with_the_fewest_rows(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> None:
    two, one = begun(scheduler, engines)
    for engine in engines:
        engine.tell(Progress(rested=[GROUP]))
    wait_until(lambda: all(engine.noted == engine.told for engine in engines))
    scheduler.submit_all(requests("d"))
    wait_until(lambda: len(one.joined) == 2)
    assert len(two.joined) == 2


def test_nothing_joins_a_group_that_others_have_just_joined(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> None:
    two, one = begun(scheduler, engines)
    scheduler.submit_all(requests("d"))
    one.wake()  # in vain
    two.tell(Progress(rested=[GROUP]))
    wait_until(lambda: len(two.joined) == 3)
    assert len(one.joined) == 1
    assert scheduler.queue_depth == 0


def test_all_that_was_taken_fails_where_some_cannot_join() -> None:
    """Sentences of two groups, of which the first is refused."""

    class Refusing(ToldEngine):
        def join(self, tasks: Mapping[int, Sentence]) -> None:
            raise DecoderLostError("gone")

    engine = Refusing()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    several = [
        Request(text="a", options=SearchOptions(beam_size=1)),
        Request(text="b", options=SearchOptions(beam_size=2)),
    ]
    for ticket in scheduler.submit_all(several):
        with pytest.raises(DecoderLostError):
            ticket.result(PATIENT)
    wait_until(lambda: engine.restarts >= 1)
    scheduler.close(PATIENT)


def test_an_engine_without_sentences_does_not_rest() -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    ticket.cancel()
    engine.wake()
    wait_until(lambda: engine.cancelled == engine.joined)
    with pytest.raises(CancelledError):
        ticket.result(0)
    (other,) = scheduler.submit_all(requests("b"))
    wait_until(lambda: len(engine.joined) == 2)
    engine.finish()  # of the first, too, which is too late
    assert other.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)


def test_what_an_engine_has_taken_outlives_its_restart() -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    engine.lost = True
    engine.wake()
    wait_until(lambda: engine.restarts == 1)
    engine.finish()
    assert ticket.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)


def test_what_an_engine_gives_up_fails_with_an_error_to_try_again_after() -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    engine.tell(Progress(failed=[(engine.joined[0], DecoderLostError("gone"))]))
    with pytest.raises(DecoderLostError, match="gone") as caught:
        ticket.result(PATIENT)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
    scheduler.close(PATIENT)


def test_what_comes_goes_to_the_engine_with_the_least_company(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> None:
    busy, free = engines
    busy.company = 3
    for count in range(1, 9):
        scheduler.submit_all(requests(str(count)))
        wait_until(lambda count=count: len(free.joined) == count)
        free.finish()
        wait_until(lambda: scheduler.num_held == 0)
    assert not busy.joined


def test_what_comes_joins_the_engine_that_decodes_least_for_all_models(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> None:
    two, one = begun(scheduler, engines)
    one.company = 5
    for engine in engines:
        engine.tell(Progress(rested=[GROUP]))
    wait_until(lambda: all(engine.noted == engine.told for engine in engines))
    scheduler.submit_all(requests("d"))
    wait_until(lambda: len(two.joined) == 3)


def test_a_group_that_has_ended_does_not_rest(
    scheduler: TranslationScheduler, engines: list[ToldEngine]
) -> None:
    other = SearchOptions(beam_size=1)
    scheduler.submit_all([Request(text=text, options=other) for text in "ab"])
    wait_until(lambda: all(each.joined for each in engines))
    for engine in engines:
        engine.tell(Progress(rested=[Group(1, shortlisted=False)]))
    wait_until(lambda: all(engine.noted == engine.told for engine in engines))
    scheduler.submit_all(requests("c", "d"))
    wait_until(lambda: scheduler.queue_depth == 0)
    for engine in engines:  # what has just joined is done before it could rest
        done = Done(Translation("done", (hypothesis(),)))
        engine.tell(Progress(outcomes=[(number, done) for number in engine.joined[1:]]))
    wait_until(lambda: scheduler.num_held == 2)
    wait_until(lambda: all(engine.noted == engine.told for engine in engines))
    scheduler.submit_all(requests("e"))
    wait_until(lambda: scheduler.queue_depth == 0)
    assert scheduler.num_held == 3


def test_what_waits_at_the_end_is_done_by_the_engine_that_is_restarted() -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine), limits=BatchLimits(max_rows=1))
    first, second = scheduler.submit_all(requests("a", "b"))
    wait_until(lambda: len(engine.joined) == 1)
    scheduler.retire()
    engine.lost = True
    engine.wake()
    wait_until(lambda: engine.restarts == 1)
    for ticket, joined in ((first, 1), (second, 2)):
        wait_until(lambda joined=joined: len(engine.joined) == joined)
        engine.finish()
        assert ticket.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)
    assert (engine.restarts, engine.closed) == (1, True)


def test_a_failure_nobody_foresaw_ends_what_is_decoded_and_nothing_else() -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    engine.tell(Progress(outcomes=[(engine.joined[0], Done(Translation("no hypothesis")))]))
    with pytest.raises(DecoderLostError, match="try again") as caught:
        ticket.result(PATIENT)
    assert isinstance(caught.value.__cause__, IndexError)
    (other,) = scheduler.submit_all(requests("b"))
    wait_until(lambda: len(engine.joined) == 2)
    engine.finish()
    assert other.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)


@pytest.mark.parametrize("soon", [True, False])
def test_an_idle_engine_that_is_lost_is_restarted_before_it_gets_anything(soon: bool) -> None:
    engine = ToldEngine()
    scheduler = TranslationScheduler(ToldTranslator(engine))
    engine.lost = True
    if not soon:  # nothing comes
        wait_until(lambda: engine.restarts == 1)
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    assert engine.restarts == 1
    engine.finish()
    assert ticket.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)


def test_what_waits_is_not_looked_through_while_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ToldEngine()
    limits = BatchLimits(max_rows=2)
    scheduler = TranslationScheduler(ToldTranslator(engine), limits=limits)
    scheduler.submit_all(requests("a", "b"))
    wait_until(lambda: len(engine.joined) == 2)
    scheduler.submit_all(requests(*map(str, range(300))))
    counted, hold = 0, BatchRoom.hold

    def count(room: BatchRoom, demand: Demand) -> None:
        nonlocal counted
        counted += 1
        hold(room, demand)

    monkeypatch.setattr(BatchRoom, "hold", count)
    engine.wake()  # nothing can join its group yet
    wait_until(lambda: engine.noted == engine.told)
    assert 2 <= counted <= 4 * 3  # those that are decoded, and the first that waits
    monkeypatch.undo()
    scheduler.abandon()
    engine.finish()
    scheduler.close(PATIENT)
