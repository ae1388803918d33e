"""Who uses the GPU at the same time as whom."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serving.errors import DeviceLostError
from serving.runtime.gpu.cuda_driver import DriverError
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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. "
            "Status Message: CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; "
            "hostname=here ; file=cuda_call.cc"
        ),
        RuntimeError("CUDA failure 214: uncorrectable ECC error encountered ; GPU=0"),
        DriverError("the NVIDIA driver failed: cuStreamSynchronize returned error 719"),
    ],
)
@pytest.mark.parametrize("kind", [Turns.take, Turns.alone])
def test_in_a_turn_it_shows_that_the_gpu_is_lost(error: Exception, kind: Any) -> None:
    turns = Turns(1)
    said = r"^the GPU has failed \(.*\); try again$"
    with pytest.raises(DeviceLostError, match=said) as lost, kind(turns), turns.take():
        raise error
    assert "hostname" not in str(lost.value)
    with turns.alone():  # it has ended
        pass


@pytest.mark.parametrize(
    "said",
    [
        "CUDA failure 2: out of memory ; GPU=0",
        "CUDA failure 1: invalid argument ; GPU=0",
        "the NVIDIA driver failed: cuStreamEndCapture returned error 901",
        "of 700 rows",
    ],
)
def test_after_other_failures_the_gpu_is_used_again(said: str) -> None:
    with pytest.raises(RuntimeError, match=said), Turns(1).take():
        raise RuntimeError(said)
