"""What the thread of an engine gives it and when, over engines that do as they are told."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping

import pytest

from serving.errors import CancelledError, DecoderLostError
from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from serving.search.sentence import Group, Sentence
from serving.translation.results import TextHypothesis, Translation
from serving.translation.running import Progress
from serving.translation.scheduler import Request, Scheduler
from tests.unit.serving.echo import EchoTranslator, wait_until

PATIENT = 30.0
GROUP = Group(SearchOptions().beam_size, shortlisted=False)


class ToldEngine:
    """Decodes nothing; `tell` is what happens next."""

    resident_bytes = 0

    def __init__(self) -> None:
        self.joined: list[int] = []
        self.cancelled: list[int] = []
        self.restarts, self.closed, self.lost = 0, False, False
        self._told: queue.SimpleQueue[Progress | DecoderLostError] = queue.SimpleQueue()

    def join(self, sentences: Mapping[int, Sentence]) -> None:
        self.joined += sentences

    def cancel(self, numbers: Iterable[int]) -> None:
        self.cancelled += numbers

    def step(self) -> Progress:
        told = self._told.get()
        if isinstance(told, DecoderLostError):
            raise told
        return told

    def wake(self) -> None:
        self._told.put(Progress())

    def restart(self) -> None:
        self.restarts += 1
        self.lost = False

    def close(self) -> None:
        self.closed = True

    def tell(self, told: Progress | DecoderLostError) -> None:
        self._told.put(told)

    def finish(self) -> None:
        """All that has joined is done."""
        done = Translation("done", (hypothesis(),))
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
def scheduler(engines: list[ToldEngine]) -> Iterator[Scheduler]:
    scheduler = Scheduler(ToldTranslator(*engines), workers=2)
    yield scheduler
    for engine in engines:
        engine.finish()
    scheduler.close(PATIENT)
    assert all(engine.closed for engine in engines)


def requests(*texts: str) -> list[Request]:
    return [Request(text=text) for text in texts]


def begun(scheduler: Scheduler, engines: list[ToldEngine]) -> tuple[ToldEngine, ToldEngine]:
    """The engine with two sentences and that with one."""
    scheduler.submit_all(requests("a", "b", "c"))
    wait_until(lambda: sorted(len(engine.joined) for engine in engines) == [1, 2])
    one, two = sorted(engines, key=lambda engine: len(engine.joined))
    return two, one


def test_what_comes_joins_the_engine_with_the_fewest_rows(
    scheduler: Scheduler, engines: list[ToldEngine]
) -> None:
    two, one = begun(scheduler, engines)
    for engine in engines:
        engine.tell(Progress(rested=[GROUP]))
    wait_until(lambda: all(decoder.open for decoder in scheduler._decoders))
    scheduler.submit_all(requests("d"))
    wait_until(lambda: len(one.joined) == 2)
    assert len(two.joined) == 2


def test_nothing_joins_a_group_that_others_have_just_joined(
    scheduler: Scheduler, engines: list[ToldEngine]
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
        def join(self, sentences: Mapping[int, Sentence]) -> None:
            raise DecoderLostError("gone")

    engine = Refusing()
    scheduler = Scheduler(ToldTranslator(engine))
    several = [
        Request(text="a", options=SearchOptions(beam_size=1)),
        Request(text="b", options=SearchOptions(beam_size=2)),
    ]
    for ticket in scheduler.submit_all(several):
        with pytest.raises(DecoderLostError):
            ticket.result(PATIENT)
    assert engine.restarts >= 1
    scheduler.close(PATIENT)


def test_an_engine_without_sentences_does_not_rest() -> None:
    engine = ToldEngine()
    scheduler = Scheduler(ToldTranslator(engine))
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


def test_an_engine_that_is_lost_fails_its_sentences_and_is_restarted(
    scheduler: Scheduler, engines: list[ToldEngine]
) -> None:
    tickets = scheduler.submit_all(requests("a", "b"))
    wait_until(lambda: all(engine.joined for engine in engines))
    engines[0].tell(DecoderLostError("gone"))
    wait_until(lambda: engines[0].restarts == 1)
    engines[1].finish()
    outcomes = []
    for ticket in tickets:
        try:
            outcomes.append(ticket.result(PATIENT).translation.text)
        except DecoderLostError as error:
            outcomes.append(str(error))
    assert sorted(outcomes) == ["done", "gone"]
    assert engines[1].restarts == 0


def test_a_group_that_has_ended_does_not_rest(
    scheduler: Scheduler, engines: list[ToldEngine]
) -> None:
    engine, decoder = engines[0], scheduler._decoders[0]
    other = SearchOptions(beam_size=1)
    scheduler.submit_all([Request(text=text, options=other) for text in "ab"])
    wait_until(lambda: all(each.joined for each in engines))
    engine.tell(Progress(rested=[other_group := Group(1, shortlisted=False)]))
    engines[1].tell(Progress(rested=[other_group]))
    wait_until(lambda: all(each.open for each in scheduler._decoders))
    scheduler.submit_all(requests("c", "d"))
    wait_until(lambda: scheduler.queue_depth == 0)
    assert not decoder.open or not scheduler._decoders[1].open
    for each in engines:  # what has just joined is done before it could rest
        done = Translation("done", (hypothesis(),))
        each.tell(Progress(outcomes=[(number, done) for number in each.joined[1:]]))
    wait_until(lambda: all(each.open for each in scheduler._decoders))
    assert scheduler.num_held == 2


def test_what_waits_at_the_end_is_done_by_the_engine_that_is_restarted() -> None:
    engine = ToldEngine()
    scheduler = Scheduler(ToldTranslator(engine), limits=BatchLimits(max_rows=1))
    first, second = scheduler.submit_all(requests("a", "b"))
    wait_until(lambda: len(engine.joined) == 1)
    scheduler.retire()
    engine.tell(DecoderLostError("gone"))
    with pytest.raises(DecoderLostError):
        first.result(PATIENT)
    wait_until(lambda: len(engine.joined) == 2)
    engine.finish()
    assert second.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)
    assert (engine.restarts, engine.closed) == (1, True)


def test_a_failure_nobody_foresaw_ends_what_is_decoded_and_nothing_else() -> None:
    engine = ToldEngine()
    scheduler = Scheduler(ToldTranslator(engine))
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    engine.tell(Progress(outcomes=[(engine.joined[0], Translation("no hypothesis"))]))
    with pytest.raises(IndexError):
        ticket.result(PATIENT)
    (other,) = scheduler.submit_all(requests("b"))
    wait_until(lambda: len(engine.joined) == 2)
    engine.finish()
    assert other.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)


@pytest.mark.parametrize("soon", [True, False])
def test_an_idle_engine_that_is_lost_is_restarted_before_it_gets_anything(soon: bool) -> None:
    engine = ToldEngine()
    scheduler = Scheduler(ToldTranslator(engine))
    engine.lost = True
    if not soon:  # nothing comes
        wait_until(lambda: engine.restarts == 1)
    (ticket,) = scheduler.submit_all(requests("a"))
    wait_until(lambda: len(engine.joined) == 1)
    assert engine.restarts == 1
    engine.finish()
    assert ticket.result(PATIENT).translation.text == "done"
    scheduler.close(PATIENT)
