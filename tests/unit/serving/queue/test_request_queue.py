"""What the queue accepts and refuses, by a clock that goes when it is told to."""

from __future__ import annotations

import time

import pytest

from serving.errors import OverloadedError
from serving.queue.request_queue import RequestQueue


class Waiting:
    """A request that never ends by itself."""

    def __init__(self, seconds: float = 1e9) -> None:
        self.deadline = time.monotonic() + seconds

    def expire(self) -> bool:
        """Never."""
        return False


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self._running: list[Waiting] = []
        monkeypatch.setattr("serving.queue.request_queue.time.monotonic", lambda: self.now)

    def take(self, queue: RequestQueue[Waiting], count: int) -> None:
        """As a batch with room for so many does, once all that it decoded has ended."""
        for item in self._running:
            queue.note_end(item, decoded=True)
        room = iter(range(count))
        self._running = queue.take(lambda _: next(room, None) is not None or None)


def test_a_full_queue_says_when_it_will_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue: RequestQueue[Waiting] = RequestQueue(4, "sentences")
    queue.put([Waiting() for _ in range(4)])
    with pytest.raises(OverloadedError, match="holds at most 4 sentences and has 4") as caught:
        queue.put([Waiting()])
    assert caught.value.retry_after_s == 1.0  # nothing is known of the pace yet
    clock.take(queue, 1)
    for _ in range(2):
        clock.now += 3.0
        clock.take(queue, 1)
    queue.put([Waiting() for _ in range(3)])
    with pytest.raises(OverloadedError) as caught:
        queue.put([Waiting()])
    assert caught.value.retry_after_s == 4 * 3.0
    clock.now += 1000.0
    with pytest.raises(OverloadedError) as caught:
        queue.put([Waiting()])
    assert caught.value.retry_after_s == 60.0


def test_what_would_wait_too_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue: RequestQueue[Waiting] = RequestQueue(100, "sentences")
    queue.put([Waiting() for _ in range(32)])
    clock.take(queue, 20)  # room for these does not tell how soon there is more
    for _ in range(2):
        clock.now += 2.0
        clock.take(queue, 1)
    with pytest.raises(OverloadedError, match=r"10 sentences wait, .* about 20.0 s, .* 30.0 s"):
        queue.put([Waiting(30.0)])
    queue.put([Waiting(41.0)])
    assert len(queue) == 11


def test_times_in_which_there_was_room_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue: RequestQueue[Waiting] = RequestQueue(100, "sentences")
    for _ in range(10):
        clock.now += 600.0
        queue.put([Waiting()])
        clock.now += 0.01
        clock.take(queue, 1)
    queue.put([Waiting(1.0) for _ in range(40)])
    queue.put([Waiting(1.0)])
    assert len(queue) == 41


def slow(clock: Clock, waiting: int) -> RequestQueue[Waiting]:
    """A queue of which one is taken a second, with so many that wait."""
    queue: RequestQueue[Waiting] = RequestQueue(100, "sentences")
    queue.put([Waiting() for _ in range(waiting + 4)])
    for _ in range(4):
        clock.take(queue, 1)
        clock.now += 1.0
    return queue


def test_a_request_that_names_no_deadline_waits_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = slow(Clock(monkeypatch), 9)
    with pytest.raises(OverloadedError, match=r"9 sentences wait, .* may wait 5 s") as caught:
        queue.put([Waiting(30.0)], max_wait_s=5.0)
    assert caught.value.retry_after_s == pytest.approx(12.0, abs=1.0)
    queue.put([Waiting(30.0)])  # who names one may wait for half of it
    queue = slow(Clock(monkeypatch), 3)
    queue.put([Waiting(30.0) for _ in range(50)], max_wait_s=5.0)  # its own do not count
    assert len(queue) == 53


def test_nothing_is_refused_while_no_pace_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue: RequestQueue[Waiting] = RequestQueue(100, "sentences")
    for _ in range(60):
        queue.put([Waiting()], max_wait_s=0.001)
    clock.now += 1000.0
    queue.put([Waiting()], max_wait_s=0.001)
    assert len(queue) == 61


def test_an_idle_queue_refuses_nothing_for_what_was_slow_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    queue = slow(clock, 6)
    clock.take(queue, 6)
    queue.put([Waiting()], max_wait_s=0.001)  # nothing waits
    with pytest.raises(OverloadedError):
        queue.put([Waiting()], max_wait_s=0.001)
    clock.take(queue, 1)
    clock.now += 11.0
    queue.put([Waiting()], max_wait_s=0.001)
    queue.put([Waiting()], max_wait_s=0.001)  # what was measured is forgotten
    assert len(queue) == 2


def test_what_never_came_to_its_end_shows_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was cancelled, or is decoded again, is no measure of decoding."""
    clock = Clock(monkeypatch)
    queue: RequestQueue[Waiting] = RequestQueue(100, "sentences")
    queue.put([Waiting() for _ in range(8)])
    for decoded in (True, False, False):
        (item,) = queue.take(lambda _: True, lambda: len(queue))
        clock.now += 1.0 if decoded else 0.1
        queue.note_end(item, decoded=decoded)
    (item,) = queue.take(lambda _: True, lambda: len(queue))
    queue.put_back(item)
    # Five wait at 0.4 s each, then 0.4 s and 1 s for it alone.
    with pytest.raises(OverloadedError, match=r"5 sentences wait, .* 2\.0 s; .* about 3\.4 s"):
        queue.put([Waiting()], max_wait_s=3.0)
    queue.put([Waiting()], max_wait_s=3.5)


def test_nothing_to_add_is_no_reason_to_refuse() -> None:
    queue: RequestQueue[Waiting] = RequestQueue(2, "sentences")
    queue.put([Waiting(), Waiting()])
    queue.put_back(Waiting())  # what is decoded again may be more than the queue holds
    queue.put([])
    assert len(queue) == 3
    with pytest.raises(OverloadedError):
        queue.put([Waiting()])
