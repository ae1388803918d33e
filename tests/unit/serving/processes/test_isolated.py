"""What an engine has decoded in processes, over processes that do nothing."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, cast

import pytest

from serving.errors import DeviceMemoryError, OverloadedError
from serving.processes.group import ProcessGroup, ProcessLink
from serving.processes.isolated import IsolatedEngine
from serving.queue.engine import Progress
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
