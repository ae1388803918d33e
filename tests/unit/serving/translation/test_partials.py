"""What is told of a translation before it ends."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.queue.limits import BatchLimits
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Finished, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, PartialTranslation, Request, TranslationTicket
from serving.translation.translator import Wishes
from tests.unit.serving.echo import EchoTranslator
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper

property_test = settings(max_examples=60, deadline=None, derandomize=True)


def common_prefix(outputs: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Plainly, by comparing."""
    together = itertools.takewhile(
        lambda column: len(set(column)) == 1, zip(*outputs, strict=False)
    )
    return tuple(column[0] for column in together)


@property_test
@given(
    seed=st.integers(0, 10**6),
    beam_size=st.integers(1, 5),
    prefix=st.lists(st.integers(4, 8), max_size=3),
    length_penalty=st.sampled_from([0.0, 1.0]),
    patience=st.sampled_from([1.0, 2.0]),
)
def test_the_agreed_prefix_grows_and_is_that_of_all_contenders(
    seed: int, beam_size: int, prefix: list[int], length_penalty: float, patience: float
) -> None:
    model = FakeModel(vocab_size=9, seed=seed, scale=4.0)
    options = SearchOptions(
        beam_size=beam_size, max_length=20, length_penalty=length_penalty, patience=patience
    )
    search = BeamSearch(FakeStepper(model), [Sentence((5, 6, EOS_ID), options, prefix)])
    told: list[tuple[int, ...]] = [()]
    finished: list[Finished] = []
    while search.live:
        finished = search.step()
        if search.live:
            row = search._rows.searches[0]
            live = np.flatnonzero(search._rows.scores_BK[0] > -np.inf).tolist()
            contenders = [tuple(row.history(beam)) for beam in live]
            if row._finished:
                best = max(row._finished, key=lambda ended: ended.score)
                contenders.append(row._hypothesis(best).tokens)
            agreed = tuple(search.agreed(0))
            assert agreed == common_prefix(contenders)
            assert agreed[: len(told[-1])] == told[-1]
            told.append(agreed)
    final = finished[0].hypotheses[0].tokens
    assert final[: len(told[-1])] == told[-1]


class WavyTranslator(EchoTranslator):
    """Outputs of random bytes, some of them characters."""

    def __init__(self, seed: int) -> None:
        model = FakeModel(vocab_size=260, seed=seed, scale=3.0, eos_bias=6.0)
        super().__init__(stepper=FakeStepper(model))


async def follow(ticket: TranslationTicket) -> tuple[list[str], str]:
    """PartialTranslation texts, and the whole."""
    partials = []
    async for event in ticket.events():
        if isinstance(event, PartialTranslation):
            partials.append(event.text)
        else:
            assert isinstance(event, Completed)
            return partials, event.translation.text
    raise AssertionError


async def follow_all(tickets: list[TranslationTicket]) -> list[tuple[list[str], str]]:
    return await asyncio.gather(*map(follow, tickets))


def check(partials: list[str], whole: str) -> None:
    for before, after in itertools.pairwise(partials):
        assert after.startswith(before)
        assert len(after) > len(before)
    assert all(whole.startswith(partial) for partial in partials)


def test_partials_begin_with_each_other_and_the_whole_with_them() -> None:
    told = 0
    for seed in range(6):
        translator = WavyTranslator(seed)
        scheduler = TranslationScheduler(translator, limits=BatchLimits(max_rows=4))
        requests = [
            Request(
                text="abcde"[: 1 + number % 5],
                options=SearchOptions(beam_size=1 + number % 3, max_length=25),
                target_prefix="ä"[: number % 2],
                stream=number % 4 != 3,
            )
            for number in range(12)
        ]
        results = asyncio.run(follow_all(scheduler.submit_all(requests)))
        for request, (partials, whole) in zip(requests, results, strict=True):
            check(partials, whole)
            told += len(partials)
            assert request.stream or not partials
            (alone,) = translator.translate_sentences(
                request.text, request.options, wishes=Wishes(target_prefix=request.target_prefix)
            )
            assert alone.text == whole or "repetition" in alone.warnings
        scheduler.close(30)
    assert told > 30


def test_a_loop_is_left_without_taking_back_what_was_streamed() -> None:
    translator = EchoTranslator()
    translator.stepper.gate.clear()
    scheduler = TranslationScheduler(translator)
    request = Request(text="ab" * 8, options=SearchOptions(beam_size=2), stream=True)

    async def run() -> list[tuple[list[str], str]]:
        tickets = scheduler.submit_all([request, request])
        tasks = [asyncio.create_task(follow(ticket)) for ticket in tickets]
        await asyncio.sleep(0.01)
        translator.stepper.gate.set()
        return await asyncio.gather(*tasks)

    for partials, whole in asyncio.run(run()):
        assert partials
        check(partials, whole)
        assert whole != request.text
    assert scheduler.submit(request).result(30).translation.warnings[0] == "repetition"
    scheduler.close(30)
