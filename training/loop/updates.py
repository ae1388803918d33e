"""The batches of each update, in order, prepared ahead of the model by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any

from training.errors import BatchError, TrainingError
from training.tasks.task import Task

AHEAD = 4
"""Number of updates prepared in advance."""


@dataclass(frozen=True)
class Place:
    """Position of a run in its data; checkpoints store it."""

    epoch: int = 0
    position: int = 0
    """Number of batches seen, by all processes."""
    begun: int = 0
    """Step at which the epoch began."""
    part: int = 0
    """Part of the epoch to which `position` refers."""


@dataclass(frozen=True)
class Update:
    """The batches of one update."""

    batches: list[Any]
    """Batches of all processes."""
    after: Place = Place()
    """Position of the run after the update."""
    prepared: Any = None
    """Result of `prepare` for the batches (`iterate_updates`)."""


def iterate_updates(
    data: Task, place: Place, step: int, size: int, prepare: Callable[[list[Any]], Any]
) -> Generator[Update]:
    """Yield updates of `size` batches without end, from the given place and step.

    The last update of an epoch's part may have fewer batches. An epoch ends early if the text
    changes. A thread prepares the next part while the second half of the current one is used.
    """
    with ThreadPoolExecutor(1, "epoch") as pool:
        following = pool.submit(data.epoch, place.epoch, place.begun, place.part)
        while True:
            batches = following.result()
            groups = range(place.position, len(batches), size)
            change = data.change_after(place.begun)
            if change is not None:
                groups = groups[: max(0, change - step)]
            step += len(groups)
            after = Place(place.epoch + 1, begun=step)
            if place.part + 1 < data.parts(place.begun) and (change is None or step < change):
                after = Place(place.epoch, begun=place.begun, part=place.part + 1)
            lay_out = partial(data.epoch, after.epoch, after.begun, after.part)
            if not groups:
                following = pool.submit(lay_out)
            for number, start in enumerate(groups):
                if number == len(groups) // 2:
                    following = pool.submit(lay_out)
                group = batches[start : start + size]
                place = replace(place, position=start + len(group))
                yield Update(group, place, prepare(group))
            place = after


class Ahead:
    """Takes updates in a thread, a few in advance; close it after use."""

    def __init__(self, updates: Generator[Update], depth: int = AHEAD) -> None:
        self._ready: queue.Queue[Update | BaseException] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(updates,), name="batches")
        self._thread.start()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the thread after its current update."""
        self._closed.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._ready.get_nowait()  # it may be waiting for room
            self._thread.join(0.01)

    def next(self) -> Update:
        """The next update; waits until it is ready.

        Raises the thread's error, as a BatchError if it is not a TrainingError.
        """
        found = self._ready.get()
        if isinstance(found, Update):
            return found
        if isinstance(found, TrainingError):
            raise found
        reason = " ".join(str(found).split())
        raise BatchError(
            f"the next batches could not be prepared: {type(found).__name__}: {reason}; the same "
            "command goes on from the last checkpoint"
        ) from found

    def _work(self, updates: Generator[Update]) -> None:
        try:
            for update in updates:
                self._ready.put(update)
                if self._closed.is_set():
                    break
        except BaseException as error:
            self._ready.put(error)
        finally:
            updates.close()
