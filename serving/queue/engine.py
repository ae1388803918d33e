"""The interface between a scheduler and the engines that decode: works, tasks and progress.

An engine gets tasks, reports news of them while they run, and ends each with an outcome.
Translation and generation define what tasks, news and outcomes are. The caller numbers the tasks
and never uses a number twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from serving.errors import DeviceLostError
from serving.queue.limits import Demand

Task = TypeVar("Task")
Task_contra = TypeVar("Task_contra", contravariant=True)
News = TypeVar("News")
Outcome = TypeVar("Outcome")


@dataclass(eq=False, repr=False)
class Work(ABC, Generic[Task, News, Outcome]):
    """A task on its way through a scheduler; each subclass knows who waits for it."""

    task: Task
    demand: Demand
    submitted: float
    """Submission time and deadline, on the monotonic clock."""
    deadline: float
    began: bool = field(default=False, init=False)
    """Whether the work has joined a batch."""
    again: bool = field(default=False, init=False)
    """Whether a batch with this work did not fit the device's memory, so that it is decoded
    again."""

    @abstractmethod
    def expire(self) -> bool:
        """Whether nobody waits for the work any more. If it is overdue, it fails now."""

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Record the time of joining a batch (monotonic), the seconds of the encoder, and the
        number of rows in the batch. Some kinds of works ignore this."""

    @abstractmethod
    def tell(self, news: News) -> None:
        """Deliver news: output that is certain by now."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> Sequence[Work[Task, News, Outcome]]:
        """Take the outcome of the task. Returns works to decode in its place, if there are any;
        they go to the head of the queue."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Fail the work for everyone who waits for it."""


@dataclass(frozen=True)
class Joined:
    """Reports that tasks have joined the running batch."""

    numbers: tuple[int, ...]
    began: float
    """Time of joining (monotonic, which all processes of a machine share)."""
    encode_s: float
    lengths: tuple[int, ...]
    """Source ids, or prompt tokens, of each row that is now in the batch, the new ones included."""


@dataclass(slots=True)
class Progress(Generic[News, Outcome]):
    """Everything that has happened since the last report."""

    joined: list[Joined] = field(default_factory=list)
    news: list[tuple[int, News]] = field(default_factory=list)
    """Certain output of tasks that may continue; in order, and before their outcomes."""
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    """Outcomes of tasks that have finished and left."""
    failed: list[tuple[int, Exception]] = field(default_factory=list)
    """Tasks that have left with an error of their own."""
    rested: list[Hashable] = field(default_factory=list)
    """Groups that accept new tasks again."""

    @property
    def matters(self) -> bool:
        """Whether the caller must act on it: anything but notes of joined tasks."""
        return bool(self.news or self.outcomes or self.failed or self.rested)

    def check_device(self) -> None:
        """Raise the DeviceLostError of a failed task, if there is one: whatever else the engine
        decodes will fail, too."""
        for _, error in self.failed:
            if isinstance(error, DeviceLostError):
                raise error

    def extend(self, later: Progress[News, Outcome]) -> None:
        """Append a later report."""
        self.joined += later.joined
        self.news += later.news
        self.outcomes += later.outcomes
        self.failed += later.failed
        self.rested += later.rested


class Engine(Protocol[Task_contra, News, Outcome]):
    """Decodes tasks, possibly in another process, which may also decode `company` rows of other
    models.

    `join` adds tasks of one group; the group then accepts no others until the engine reports that
    it has `rested`. `step` advances decoding, or waits for news or until another thread calls
    `wake`. If `lost` is set, the engine needs a `restart` before it accepts tasks; it reports for
    each running task whether it continues or fails. If `step` or `join` raises, all running tasks
    are lost and a restart is needed.
    """

    @property
    def lost(self) -> bool: ...

    @property
    def company(self) -> int: ...

    def join(self, tasks: Mapping[int, Task_contra]) -> None: ...

    def cancel(self, numbers: Iterable[int]) -> None: ...

    def step(self) -> Progress[News, Outcome]: ...

    def wake(self) -> None: ...

    def restart(self) -> None: ...

    def close(self) -> None: ...
