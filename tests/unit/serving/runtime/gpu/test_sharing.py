"""Who uses the GPU at the same time as whom."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.runtime.gpu.sharing import Turns


class Seen:
    """Notes who is inside, and how many at most."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.mutex = threading.Lock()

    def stay(self) -> None:
        with self.mutex:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.005)
        with self.mutex:
            self.inside -= 1


@pytest.mark.parametrize("at_once", [1, 3])
def test_as_many_threads_as_are_let_have_a_turn_and_one_alone_has_it_alone(at_once: int) -> None:
    turns, beside, alone = Turns(at_once), Seen(), Seen()

    def run(number: int) -> None:
        if number % 5:
            with turns.take(), turns.take():
                assert not alone.inside
                beside.stay()
            return
        with turns.alone(), turns.take():
            assert not beside.inside
            alone.stay()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(60)))
    assert (beside.most, alone.most) == (at_once, 1)


def test_who_waits_to_be_alone_is_not_kept_waiting_by_those_who_come_later() -> None:
    turns, order = Turns(2), []
    entered = threading.Event()

    def alone() -> None:
        with turns.alone():
            order.append("alone")

    def later() -> None:
        with turns.take():
            order.append("later")

    with turns.take():
        first = threading.Thread(target=alone)
        first.start()
        while not turns._waiting:
            time.sleep(0.001)
        second = threading.Thread(target=later)
        second.start()
        entered.wait(0.02)
        assert order == []
    first.join()
    second.join()
    assert order == ["alone", "later"]


def test_a_turn_ends_with_an_error() -> None:
    turns = Turns(1)
    for turn in (turns.take, turns.alone):
        with pytest.raises(ValueError, match="wrong"), turn():
            raise ValueError("wrong")
    with turns.take(), pytest.raises(AssertionError, match="wait for itself"), turns.alone():
        pass
    with turns.alone():
        pass
