"""Works that wait to be decoded, what a scheduler asks of an engine that decodes them, and what the
engine tells.

An engine is given the tasks of works, reports news of them while they run, and ends each with an
outcome; what these are is the business of translation and of generation. Tasks go by numbers, which
the caller chooses and never uses twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from serving.queue.limits import Demand

Task = TypeVar("Task")
Task_contra = TypeVar("Task_contra", contravariant=True)
News = TypeVar("News")
Outcome = TypeVar("Outcome")


@dataclass(eq=False, repr=False)
class Work(ABC, Generic[Task, News, Outcome]):
    """A task on its way through a scheduler; the subclass of each kind knows who waits for it."""

    task: Task
    demand: Demand
    submitted: float
    """By the monotonic clock, as the deadline."""
    deadline: float
    began: bool = field(default=False, init=False)
    """Whether it has been taken into a batch."""
    again: bool = field(default=False, init=False)
    """Whether a batch with it did not fit the device's memory, so that it is decoded anew."""

    @abstractmethod
    def expire(self) -> bool:
        """Whether nobody waits for it any more; who is overdue fails now."""

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Note when it was taken into a batch, by the monotonic clock, the seconds that the encoder
        took, and the rows of the batch; of some kinds nobody asks."""

    @abstractmethod
    def tell(self, news: News) -> None:
        """Pass on what has become certain."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> Sequence[Work[Task, News, Outcome]]:
        """Take what has come of the task; returns what is to be decoded in its place, if anything
        is, before all that waits."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """End it for all who wait."""


@dataclass(frozen=True)
class Joined:
    """Tasks have joined what runs."""

    numbers: tuple[int, ...]
    began: float
    """By the monotonic clock, which all processes of a machine share."""
    encode_s: float
    lengths: tuple[int, ...]
    """Source ids, or prompt tokens, of every row that now runs beside them, their own included."""


@dataclass(slots=True)
class Progress(Generic[News, Outcome]):
    """What has happened since an engine was last asked."""

    joined: list[Joined] = field(default_factory=list)
    news: list[tuple[int, News]] = field(default_factory=list)
    """What has become certain of tasks that may go on; in order, and before their outcomes."""
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    """Of tasks that are done and have left."""
    failed: list[tuple[int, Exception]] = field(default_factory=list)
    """Tasks that have left with an error which is theirs alone."""
    rested: list[Hashable] = field(default_factory=list)
    """Groups that others may join again."""

    @property
    def matters(self) -> bool:
        """Whether anyone waits for it: all but what is noted of tasks that join."""
        return bool(self.news or self.outcomes or self.failed or self.rested)

    def extend(self, later: Progress[News, Outcome]) -> None:
        """Add what has happened after that."""
        self.joined += later.joined
        self.news += later.news
        self.outcomes += later.outcomes
        self.failed += later.failed
        self.rested += later.rested


class Engine(Protocol[Task_contra, News, Outcome]):
    """Decodes tasks, perhaps in a process beside this one, where `company` tasks of other models
    are decoded too.

    `join` takes some of one group, which then rests until the engine says otherwise. `step` goes
    on for a moment, or waits for news, or until another thread calls `wake`. `lost` is
    whether it needs a `restart` before it can take anything more; what it has taken goes on or
    fails, as it tells. Whatever `step` or `join` raises costs all that was running, and a restart.
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
