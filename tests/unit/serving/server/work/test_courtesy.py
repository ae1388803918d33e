"""What nobody waits for is queued so that it delays no client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from serving.errors import NotReadyError, OverloadedError, ServingError
from serving.queue.ticket import HeldWork, Ticket
from serving.server.work.courtesy import hand_over

TOOK_S = 0.03


class Works:
    """Works that end after a while; notes which were queued, when, and how many ran beside."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, float]] = []
        self.most = 0
        self.tickets: list[Ticket[str]] = []
        self.refusals: list[ServingError] = []
        """Raised in place of queueing, one at a time."""
        self._running = 0

    def held(self, *names: str, at_once: int = 4) -> list[HeldWork]:
        return [self._held(name, at_once) for name in names]

    def _held(self, name: str, at_once: int) -> HeldWork:
        ticket = Ticket[str]()
        self.tickets.append(ticket)

        def queue() -> None:
            if self.refusals:
                raise self.refusals.pop(0)
            self.queued.append((name, time.monotonic()))
            self._running += 1
            self.most = max(self.most, self._running)
            asyncio.get_running_loop().call_later(TOOK_S, end)

        def end() -> None:
            self._running -= 1
            ticket.complete(name)

        return HeldWork(ticket, queue, at_once)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.queued]


def hand_all(*requests: list[HeldWork], idle_s: Callable[[], float]) -> None:
    async def scenario() -> None:
        await asyncio.gather(*(hand_over(held, idle_s) for held in requests))
        for held in requests:
            await asyncio.gather(*(work.ticket.wait() for work in held), return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_while_clients_ask_one_work_runs_at_a_time_and_a_rest_follows_it() -> None:
    works = Works()
    hand_all(works.held("a", "b", "c"), works.held("d"), idle_s=lambda: 0.5)
    assert sorted(works.names) == ["a", "b", "c", "d"]
    assert works.names.index("d") < 3  # requests take turns
    assert works.most == 1
    gaps = [later - sooner for (_, sooner), (_, later) in itertools.pairwise(works.queued)]
    assert min(gaps) >= 5 * TOOK_S


def test_while_no_client_asks_as_many_run_as_leave_room_for_one() -> None:
    works = Works()
    begin = time.monotonic()
    hand_all(works.held(*map(str, range(12))), idle_s=lambda: 60.0)
    assert works.names == [str(number) for number in range(12)]
    assert works.most == 4
    assert time.monotonic() - begin < 12 * TOOK_S


def test_works_that_have_begun_are_waited_for_when_a_client_asks() -> None:
    works = Works()
    idle = itertools.chain([60.0] * 3, itertools.repeat(0.5))
    hand_all(works.held(*"abcde"), idle_s=lambda: next(idle))
    first, rest = works.queued[:3], works.queued[3:]
    assert first[-1][1] - first[0][1] < TOOK_S
    assert rest[0][1] - first[-1][1] >= 5 * TOOK_S


def test_a_work_that_is_refused_for_now_is_queued_later_and_one_refused_for_good_fails() -> None:
    works = Works()
    full = OverloadedError("the queue is full")
    full.retry_after_s = 0.05
    works.refusals = [full, full, NotReadyError("the model is gone")]
    hand_all(works.held("a", "b"), idle_s=lambda: 60.0)
    assert works.names == ["b"]
    assert isinstance(works.tickets[0]._future.exception(), NotReadyError)


def test_what_is_given_up_is_never_queued() -> None:
    works = Works()
    held = works.held("a", "b")
    held[0].ticket.cancel()
    hand_all(held, idle_s=lambda: 0.5)
    assert works.names == ["b"]
