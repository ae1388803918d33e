"""The engine of a model that is decoded in processes beside this one.

Threads of one process wait for each other's Python, and the server's event loop is one of them.
"""

from __future__ import annotations

import operator
import os
import select
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic

from serving.errors import DecoderLostError, OverloadedError
from serving.processes.group import ProcessGroup, ProcessLink
from serving.queue.engine import News, Outcome, Progress, Task
from serving.queue.limits import BatchLimits
from serving.search.options import Group

_POLL_MS = 50
"""Milliseconds between checks whether anyone still waits for the tasks."""


GroupOf = Callable[[Any], Group]
"""The group of a task: it shares a batch with tasks of its group alone."""


class IsolatedEngine(Generic[Task, News, Outcome]):
    """The `Engine` of a model in one process of a group, which it shares with other models.

    If a process dies, any task that it was decoding may be the cause, and so may one of another
    model. They are therefore decoded once more in a fresh process without others, and if that dies
    as well, in halves. Only a task whose process dies while it is decoded alone fails.
    """

    def __init__(self, processes: ProcessGroup, model: int, place: int, group_of: GroupOf) -> None:
        """Create an engine for a model of the group, in the process with this number. Raises
        whatever starting the process raises."""
        self._processes, self._model, self._place = processes, model, place
        self._group_of = group_of
        self._links: list[ProcessLink] = []
        """Links to processes that decode something."""
        self._poll = select.poll()
        self._suspects: deque[dict[int, Task]] = deque()
        """Tasks that were lost together, and wait to be decoded apart."""
        self._apart: ProcessLink | None = None
        """Link to the process that decodes such tasks."""
        self._woken, self._wakes = os.pipe()
        weakref.finalize(self, _close, self._woken, self._wakes)
        self._poll.register(self._woken, select.POLLIN)
        self._waking = False
        processes.open(model, place)

    @property
    def lost(self) -> bool:
        """Whether the process has ended."""
        return self._current.ended

    @property
    def pid(self) -> int:
        """The id that the system gave the process; another after a restart."""
        return self._current.pid

    @property
    def company(self) -> int:
        """Number of tasks that the process decodes for other models."""
        return self._processes.company(self._model, self._place)

    def join(self, tasks: Mapping[int, Task]) -> None:
        """Send tasks of one group to the process."""
        link = self._current
        while not link.send(tasks):  # another process has replaced it, or is about to
            self._processes.revive(self._place)
            link = self._current
        self._follow(link)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel these tasks; the processes free their rows before the next step."""
        numbers = list(numbers)
        for lost in self._suspects:
            for number in numbers:
                lost.pop(number, None)
        self._suspects = deque(filter(None, self._suspects))
        for link in list(self._links):
            self._unfollow(link)
            link.cancel(numbers)
            self._follow(link)

    def step(self) -> Progress[News, Outcome]:
        """Wait for a moment for news. Raises the error with which all tasks of a process failed."""
        progress: Progress[News, Outcome] = Progress(failed=self._try_suspects())
        ready = {descriptor for descriptor, _ in self._poll.poll(_POLL_MS)}
        if self._woken in ready:
            os.read(self._woken, 1)
            self._waking = False
        for link in [link for link in self._links if link.fileno() in ready]:
            self._unfollow(link)
            try:
                progress.extend(link.receive())
            except (EOFError, OSError):
                progress.failed.extend(self._lose(link))
            except Exception:
                self._follow(link)  # `restart` cancels what may have been sent since
                raise
            else:
                self._follow(link)
        return progress

    def wake(self) -> None:
        """Let `step` return; called by one thread at a time."""
        if not self._waking:
            self._waking = True
            os.write(self._wakes, b"w")

    def restart(self) -> None:
        """Start the process again if it has ended; tasks of others continue. Otherwise, after a
        failure of the caller or of all tasks, drop everything."""
        if not self.lost:
            self._drop()
        self._processes.revive(self._place)

    def close(self) -> None:
        """Stop decoding. The group ends its processes with its last model."""
        self._drop()
        self._processes.leave(self._model)

    @property
    def _current(self) -> ProcessLink:
        return self._processes.link(self._model, self._place)

    def _follow(self, link: ProcessLink) -> None:
        """Wait for news of a link as long as its process decodes something."""
        if link.tasks and link not in self._links:
            self._links.append(link)
            self._poll.register(link.fileno(), select.POLLIN)

    def _unfollow(self, link: ProcessLink) -> None:
        self._links.remove(link)
        self._poll.unregister(link.fileno())

    def _drop(self) -> None:
        self._suspects.clear()
        self.cancel([number for link in self._links for number in link.tasks])
        self._end_apart()

    def _lose(self, link: ProcessLink) -> list[tuple[int, Exception]]:
        """Record that a process has ended; returns the tasks that fail with it."""
        lost, refusal = list(link.tasks.items()), link.refusal()
        link.close()
        if link is not self._apart:
            self._suspects.append(dict(lost))
            return []
        self._apart = None
        if refusal is not None:
            return _given_up((number for number, _ in lost), refusal)
        if len(lost) > 1:
            middle = len(lost) // 2
            self._suspects.extendleft((dict(lost[middle:]), dict(lost[:middle])))
            return []
        error = DecoderLostError("the process that decoded the text has ended; try again")
        return [(number, error) for number, _ in lost]

    def _try_suspects(self) -> list[tuple[int, Exception]]:
        """Decode tasks that were lost together in a process apart, unless others are. Returns
        them if no process can be started for it; `_lose` does if it cannot load the model."""
        if self._apart is not None and self._apart.tasks:
            return []
        if not self._suspects:
            self._end_apart()
            return []
        lost = self._suspects.popleft()
        try:
            self._apart = self._apart or self._processes.apart(self._model, self._place)
        except Exception as reason:  # the machine is short of something
            return _given_up(lost, reason)
        groups: dict[Group, dict[int, Task]] = {}
        for number, task in lost.items():
            groups.setdefault(self._group_of(task), {})[number] = task
        for tasks in groups.values():
            self._apart.send(tasks)
        self._follow(self._apart)
        return []

    def _end_apart(self) -> None:
        if self._apart is not None:
            self._apart.close()
            self._apart = None


class IsolatedModel:
    """A bundle that a group of decoding processes has loaded."""

    def __init__(
        self,
        processes: ProcessGroup,
        folder: Path,
        *,
        threads: int = 1,
        tune: bool = False,
        limits: BatchLimits | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        group_of: GroupOf = operator.attrgetter("group"),
    ) -> None:
        """Have the bundle loaded; see `ProcessGroup.load`."""
        self._processes, self._group_of = processes, group_of
        self._number, self.device = processes.load(
            folder, threads=threads, tune=tune, limits=limits, meanwhile=meanwhile
        )
        self._engines = 0
        weakref.finalize(self, processes.forget, self._number).atexit = False

    def engine(self) -> IsolatedEngine[Any, Any, Any]:
        """An engine in the next process; the caller closes it."""
        place = self._engines
        engine = IsolatedEngine[Any, Any, Any](self._processes, self._number, place, self._group_of)
        self._engines += 1
        return engine


def _given_up(lost: Iterable[int], reason: Exception) -> list[tuple[int, Exception]]:
    """Tasks that fail because no process can decode them, whatever they are."""
    error = OverloadedError(f"decoding cannot continue: {reason}; try again")
    return [(number, error) for number in lost]


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
