"""What an engine has decoded in processes, over processes that do nothing."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, cast

import pytest

from serving.errors import BundleError, DecoderLostError, DeviceMemoryError, OverloadedError
from serving.processes.group import ProcessGroup, ProcessLink
from serving.processes.isolated import IsolatedEngine
from serving.queue.engine import Progress
from serving.runtime.session import ON_CPU
from serving.search.beams.sentence import Sentence


class IdleProcesses:
    """One process that decodes nothing, and those that are started to decode apart."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.apart_count = 0

    def open(self, model: int, place: int) -> None:
        self.current = self._start()

    def link(self, model: int, place: int) -> ProcessLink:
        return self.current

    def apart(self, model: int, place: int) -> ProcessLink:
        self.apart_count += 1
        return self._start()

    def _start(self) -> ProcessLink:
        own, other = socket.socketpair()
        self.ends.append(other)
        return ProcessLink(own, pid=0)


def test_no_process_is_started_for_what_was_lost_and_is_given_up() -> None:
    processes: Any = IdleProcesses()
    engine = IsolatedEngine(cast(ProcessGroup, processes), 0, 0, attrgetter("group"))
    engine.join({1: Sentence([4, 3]), 2: Sentence([5, 3])})
    processes.ends[0].close()  # it has died
    engine.step()
    engine.cancel([1, 2])
    assert engine.step().failed == []
    assert processes.apart_count == 0


def test_where_no_process_can_be_started_the_machine_is_to_blame_and_no_sentence() -> None:
    processes: Any = IdleProcesses()
    engine = IsolatedEngine(cast(ProcessGroup, processes), 0, 0, attrgetter("group"))
    engine.join({1: Sentence([4, 3])})
    processes.ends[0].close()  # it has died

    def apart(model: int, place: int) -> ProcessLink:
        raise OSError("Cannot allocate memory")

    processes.apart = apart
    engine.step()
    ((number, error),) = engine.step().failed
    assert number == 1
    assert isinstance(error, OverloadedError)
    assert str(error) == "decoding cannot continue: Cannot allocate memory; try again"


class Refusing:
    """A process that was started for what was lost, and what it says of loading the model."""

    pid = 0

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def answer(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def part(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (BundleError("b: needs 3 GiB, 1 GiB is free"), "b: needs 3 GiB, 1 GiB is free"),
        (EOFError(), "a process ended while it loaded the model"),
        (ON_CPU, None),
    ],
)
def test_where_the_model_cannot_be_loaded_again_that_is_tried_once(answer: Any, said: Any) -> None:
    processes: Any = IdleProcesses()
    engine = IsolatedEngine[Any, Any, Any](cast(ProcessGroup, processes), 0, 0, attrgetter("group"))
    engine.join({number: Sentence([4 + number, 3]) for number in range(4)})
    processes.ends[0].close()  # it has died

    def apart(model: int, place: int) -> ProcessLink:
        processes.apart_count += 1
        own, other = socket.socketpair()
        other.close()
        return ProcessLink(own, pid=0, loader=Refusing(answer))  # type: ignore[arg-type]

    processes.apart = apart
    failed: list[tuple[int, Exception]] = []
    for _ in range(20):
        failed += engine.step().failed
    assert sorted(number for number, _ in failed) == [0, 1, 2, 3]
    if said is None:  # each of the texts may be the cause
        assert all(isinstance(error, DecoderLostError) for _, error in failed)
        assert processes.apart_count == 7
        return
    assert {str(error) for _, error in failed} == {f"decoding cannot continue: {said}; try again"}
    assert all(isinstance(error, OverloadedError) for _, error in failed)
    assert processes.apart_count == 1


def test_what_fails_all_tasks_of_a_process_is_raised_and_what_was_sent_since_is_cancelled() -> None:
    processes: Any = IdleProcesses()
    engine = IsolatedEngine[Any, Any, Any](cast(ProcessGroup, processes), 0, 0, attrgetter("group"))
    processes.revive = lambda place: None
    engine.join({1: Sentence([4, 3])})
    process = Connection(processes.ends[0].detach())
    process.send(DeviceMemoryError("no room"))
    engine.join({2: Sentence([5, 3])})
    with pytest.raises(DeviceMemoryError, match="no room"):
        engine.step()
    engine.restart()
    assert [set(process.recv().tasks) for _ in range(2)] == [{1}, {2}]
    assert process.recv().cancelled == (1, 2)
    engine.join({3: Sentence([6, 3])})
    process.send(Progress(outcomes=[(3, "done")]))
    assert engine.step().outcomes == [(3, "done")]
