"""What a scheduler asks of what decodes for it, and what it is told.

An engine is given tasks, tells news of them while they run, and ends each with an outcome; what
these are is the business of translation and of generation. Tasks go by numbers, which the caller
chooses and never uses twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Task_contra = TypeVar("Task_contra", contravariant=True)
News = TypeVar("News")
Outcome = TypeVar("Outcome")


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


class Engine(Protocol[Task_contra, News, Outcome]):
    """Decodes tasks, perhaps in a process of its own, of `resident_bytes`.

    `join` takes some of one group, which then rests until the engine says otherwise. `step` goes
    on for a moment, or waits for something to tell, or until another thread calls `wake`. `lost` is
    whether all that was running has gone, in which case `step` raises DecoderLostError, until
    `restart`; whatever else `step` or `join` raises costs all that was running too.
    """

    @property
    def lost(self) -> bool: ...

    @property
    def resident_bytes(self) -> int: ...

    def join(self, tasks: Mapping[int, Task_contra]) -> None: ...

    def cancel(self, numbers: Iterable[int]) -> None: ...

    def step(self) -> Progress[News, Outcome]: ...

    def wake(self) -> None: ...

    def restart(self) -> None: ...

    def close(self) -> None: ...
