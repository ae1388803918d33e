"""The batches of each update in their order, prepared by a thread ahead of the model."""

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
"""Updates that are prepared before the model asks for them."""


@dataclass(frozen=True)
class Place:
    """How far a run has come in its data; checkpoints keep it."""

    epoch: int = 0
    position: int = 0
    """Batches that have been seen, by whichever process."""
    begun: int = 0
    """The step after which the epoch began."""
    part: int = 0
    """Of the epoch's parts the one of whose batches `position` counts."""


@dataclass(frozen=True)
class Update:
    """The batches of one update."""

    batches: list[Any]
    """Those of all processes."""
    after: Place = Place()
    """Where the run stands when the update is made."""
    prepared: Any = None
    """What `prepare` of `iterate_updates` has made of the batches."""


def iterate_updates(
    data: Task, place: Place, step: int, size: int, prepare: Callable[[list[Any]], Any]
) -> Generator[Update]:
    """Updates of `size` batches, from a place on at which so many steps are made, without end.

    The last one of an epoch's part may have fewer. An epoch ends early where the text changes.

    The next part is laid out, in a thread of its own, while the second half of one is given out.
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
    """Takes updates in a thread, a few ahead of who asks for them; to be closed after use."""

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
        """End the thread, after what it is at."""
        self._closed.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._ready.get_nowait()  # it may be waiting for room
            self._thread.join(0.01)

    def next(self) -> Update:
        """The next update, waited for where it is not ready.

        Raises what the thread raised; BatchError where that was no TrainingError.
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
