"""What waits in a queue and is then decoded: a task of an engine, and those who wait for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from serving.queue.engine import News, Outcome
from serving.queue.limits import Demand

Task = TypeVar("Task")


class Work(ABC, Generic[Task, News, Outcome]):
    """A task on its way through a scheduler; the subclass of each kind knows who waits for it."""

    began = False
    """Whether it has been taken into a batch."""
    _retried = False

    def __init__(self, task: Task, demand: Demand, submitted: float, deadline: float) -> None:
        """The times are by the monotonic clock."""
        self.task, self.demand = task, demand
        self.submitted, self.deadline = submitted, deadline

    @abstractmethod
    def expire(self) -> bool:
        """Whether nobody waits for it any more; who is overdue fails now."""

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Note when it was taken into a batch, by the monotonic clock, the seconds that the encoder
        took, and the rows of the batch."""
        del began, encode_s, batch_size
        self.began = True

    def retry(self) -> bool:
        """Whether it may be decoded anew after what decoded it has died, which is so once."""
        first, self._retried = not self._retried, True
        return first

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
