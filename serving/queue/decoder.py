"""A queue of requests for one model, and the threads that decode it with one or several engines.

One thread drives each engine: it passes waiting requests to the engine and delivers the results.

All requests that an engine decodes share one budget of rows, padded source tokens and cache memory.
A finished request leaves at once; a cancelled or overdue one within 50 ms. If a batch does not fit
the device's memory, its requests are decoded again from the start, half as many rows at a time.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from serving.errors import DecoderLostError, DeviceLostError, DeviceMemoryError, ServingError
from serving.queue.engine import Engine, Joined, News, Outcome, Progress, Task, Work
from serving.queue.limits import BatchLimits, Demand
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.queue.ticket import HeldWork, OpenTickets, Ticket
from serving.search.options import Group
from serving.search.stepper import CacheCosts

MAX_OVERTAKEN_S = 0.5
"""Seconds during which smaller requests may overtake one that does not fit."""

_LOOK_S, _RETRY_S = 1.0, 1.0
"""Seconds between checks for an idle engine, and between attempts to restart one."""
_YIELD_S = 0.001
"""Seconds to leave waiting requests to another decoder that can start sooner."""
FEWER_S = 60.0
"""Seconds with half the rows after a batch that did not fit the device's memory, until the full
number is tried again."""

logger = logging.getLogger(__name__)


@dataclass
class BatchRoom:
    """Counts demands while a batch is put together. There is one batch for each group; all of them
    share the limits."""

    sizes: CacheCosts
    limits: BatchLimits
    _held: dict[Group, tuple[int, Demand]] = field(default_factory=dict, init=False)
    """Number of rows and largest demands, by group."""

    @property
    def full(self) -> bool:
        """Whether not even the smallest row fits."""
        return sum(rows for rows, _ in self._held.values()) >= self.limits.max_rows

    def hold(self, demand: Demand) -> None:
        """Count a demand, whether or not it fits."""
        self._held[demand.group] = self._with(demand)

    def admit(self, demand: Demand) -> bool:
        """Count a demand if it fits beside those held; returns whether it does.

        The first demand always fits: one that is too large for any batch is refused earlier.
        """
        held = self._held | {demand.group: self._with(demand)}
        if self._held and not self._fits(held):
            return False
        self._held = held
        return True

    def _with(self, demand: Demand) -> tuple[int, Demand]:
        rows, largest = self._held.get(demand.group, (0, demand))
        length = max(largest.source_length, demand.source_length)
        slots = max(largest.slots, demand.slots)
        return rows + demand.rows, replace(demand, source_length=length, slots=slots)

    def _fits(self, held: dict[Group, tuple[int, Demand]]) -> bool:
        limits, sizes = self.limits, self.sizes
        rows = tokens = states = cache_bytes = 0
        for count, largest in held.values():
            rows += count
            tokens += count * largest.source_length
            states += count * largest.source_length * largest.group.beam_size
            cache_bytes += sizes.cache_bytes(count, largest.source_length, largest.slots)
        return (
            rows <= limits.max_rows
            and tokens <= limits.max_tokens
            and (sizes.most_states is None or states <= sizes.most_states)
            and cache_bytes <= limits.max_cache_bytes
        )


class Decoder(Generic[Task, News, Outcome]):
    """Decodes the requests of a queue in a thread of its own; several decoders may share a
    queue."""

    def __init__(
        self,
        engine: Engine[Task, News, Outcome],
        sizes: CacheCosts,
        queue: RequestQueue[Work[Task, News, Outcome]],
        limits: BatchLimits,
        observer: Observer,
    ) -> None:
        """`limits` apply to this engine alone."""
        self._engine, self._sizes, self._queue, self._limits = engine, sizes, queue, limits
        self._observer = observer
        self._works: dict[int, Work[Task, News, Outcome]] = {}
        """The works that the engine decodes, by number."""
        self._numbers = itertools.count()
        self._resting: set[Hashable] = set()
        """Groups that new works have just joined; they wait until the engine is ready again."""
        self._most_rows, self._fewer_since = limits.max_rows, -math.inf
        """The largest number of rows after an out-of-memory error, and when that was set
        (monotonic)."""
        self._others: Sequence[Decoder[Any, Any, Any]] = ()
        self.idle = True
        """Whether it could start at once. Set to False while the queue is locked."""
        self.down = False
        """Whether it cannot decode: its engine does not start, or this process has lost the GPU."""
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self, others: Sequence[Decoder[Any, Any, Any]]) -> None:
        """Start the thread; `others` take works from the same queue."""
        self._others = others
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait until everything is decoded; the queue must be closed."""
        self._thread.join(timeout)

    @property
    def num_rows(self) -> int:
        """Number of rows being decoded. A prompt that is still being read counts with all the rows
        that it will have."""
        return sum(work.demand.rows for work in list(self._works.values()))

    @property
    def company(self) -> int:
        """Number of rows that the engine's process decodes for other models."""
        return self._engine.company

    @property
    def open(self) -> bool:
        """Whether new works could join the running batch at once."""
        return bool(self._works) and not self._resting

    def wake(self) -> None:
        """Make the decoder check the queue now."""
        self._engine.wake()

    def _run(self) -> None:
        while self._works or self._queue.wait(_LOOK_S):
            if self._engine.lost:
                self._restart()
            try:
                self._join()
                if self._works:
                    self._step()
                elif len(self._queue):
                    time.sleep(_YIELD_S)
            except DeviceMemoryError as error:
                self._halve(error)
            except Exception as error:  # the thread must outlive any failure
                self._fail_all(error)
                self._restart()
                self.down = isinstance(error, DeviceLostError)  # which a restart does not mend
            self.idle = not self._works
            self._queue.drop_ended()
        self.idle = False
        self._engine.close()

    def _step(self) -> None:
        """Let the engine go on, and deliver its progress. Raises DeviceLostError."""
        progress = self._engine.step()
        if progress.failed:
            progress.check_device()
        self._note(progress)
        if progress.outcomes:
            self.down = False

    def _join(self) -> None:
        """Add waiting works that fit beside the running ones, oldest first. Idle decoders come
        first; among them the one whose processor is least busy."""
        if not len(self._queue) or any(map(self._gives_way, self._others)):
            return
        now = time.monotonic()
        room = BatchRoom(self._sizes, self._limits_at(now))
        for work in self._works.values():
            room.hold(work.demand)

        def choose(work: Work[Task, News, Outcome]) -> bool | None:
            if work.demand.group in self._resting:
                room.hold(work.demand)  # it is its turn soon
                return None if room.full else False
            if room.admit(work.demand):
                self.idle = False
                return True
            overtaken = now - work.submitted > MAX_OVERTAKEN_S
            return None if overtaken or room.full else False

        joining: dict[Hashable, dict[int, Task]] = {}
        for work in self._queue.take(choose, self._takers):
            number = next(self._numbers)
            joining.setdefault(work.demand.group, {})[number] = work.task
            self._works[number] = work  # all of them, before any can fail to join
        for group, tasks in joining.items():
            self._resting.add(group)
            self._engine.join(tasks)

    def _gives_way(self, other: Decoder[Any, Any, Any]) -> bool:
        """Whether the other decoder can start sooner on the waiting works."""
        return other.idle and bool(self._works or other.company < self.company)

    def _takers(self) -> int:
        """Number of threads that could start now on the waiting works: this one and the idle
        ones."""
        return 1 + sum(other.idle for other in self._others)

    def _limits_at(self, now: float) -> BatchLimits:
        """The current limits of a batch. They stay reduced as long as a work that did not fit is
        being decoded again."""
        if now - self._fewer_since > FEWER_S and not any(w.again for w in self._works.values()):
            return self._limits
        return replace(self._limits, max_rows=self._most_rows)

    def _note(self, progress: Progress[News, Outcome]) -> None:
        """Deliver the progress of an engine, and cancel works that nobody waits for.

        Raises the DeviceMemoryError of a failed task, if there is one.
        """
        works = self._works
        self._resting.difference_update(progress.rested)
        for joined in progress.joined:
            self._note_joined(joined)
        for number, news in progress.news:
            if number in works:
                works[number].tell(news)
        for number, outcome in progress.outcomes:
            if number in works:
                # If this fails, the work is still among those that fail with it.
                others = works[number].finish(outcome)
                self._drop(number, decoded=True)
                for instead in reversed(others):
                    self._queue.put_back(instead)
        short: DeviceMemoryError | None = None
        for number, error in progress.failed:
            if isinstance(error, DeviceMemoryError):
                short = error
            elif number in works:
                self._drop(number).fail(error)
        gone = [number for number, work in works.items() if work.expire()]
        if gone:
            for number in gone:
                self._drop(number)
            self._engine.cancel(gone)
        if self._resting:
            self._resting &= {work.demand.group for work in works.values()}
        if short is not None:
            raise short

    def _drop(self, number: int, *, decoded: bool = False) -> Work[Task, News, Outcome]:
        """Remove and return a running work; `decoded` ones came to their end."""
        work = self._works.pop(number)
        self._queue.note_end(work, decoded=decoded)
        return work

    def _note_joined(self, joined: Joined) -> None:
        works = [self._works[number] for number in joined.numbers if number in self._works]
        waits_s = [joined.began - work.submitted for work in works if not work.began]
        for work in works:
            work.began = True
            work.start(joined.began, joined.encode_s, len(joined.lengths))
        self._observer.joined(waits_s, joined.lengths)

    def _halve(self, error: DeviceMemoryError) -> None:
        """Put all running works back into the queue and take half as many rows for a while. A
        single work that does not fit fails."""
        rows = self.num_rows
        works = [self._drop(number) for number in list(self._works)]
        self._resting.clear()
        if len(works) > 1:
            self._most_rows, self._fewer_since = max(1, rows // 2), time.monotonic()
            logger.warning(
                "%d rows do not fit the device's memory: %d at once are decoded from now on; "
                "lower MACARON_MAX_BATCH_ROWS to that (%s)",
                rows,
                self._most_rows,
                str(error),  # not the error itself, whose frames hold the memory that is short
            )
        elif works:
            asked = works[0].demand
            works.pop().fail(
                DeviceMemoryError(
                    f"the device has too little memory for this request alone (rows {asked.rows}, "
                    f"beam_size {asked.group.beam_size}, {asked.source_length} source ids, "
                    f"{asked.slots} slots of caches); send less at once, or have the server refuse "
                    "it: lower MACARON_MAX_BATCH_TOKENS or MACARON_MAX_CACHE_BYTES"
                )
            )
        for work in reversed(works):
            work.again = True
            self._queue.put_back(work)
        self._start_again()

    def _fail_all(self, error: Exception) -> None:
        """Fail all running works, with an error that clients may retry."""
        logger.error("a decoder failed", exc_info=error)
        if not isinstance(error, ServingError):
            cause, error = error, DecoderLostError("decoding has failed; try again")
            error.__cause__ = cause
        for number in list(self._works):
            self._drop(number).fail(error)
        self._resting.clear()

    def _restart(self) -> None:
        self.idle = False
        self._observer.lost()
        logger.error("an engine has ended or failed; it is restarted")
        self._start_again()

    def _start_again(self) -> None:
        while True:
            try:
                self._engine.restart()
                self.down = False
                return
            except Exception:  # the machine may be short of something for a while
                self.down = True
                logger.exception("it cannot be started; next try in %g s", _RETRY_S)
            retry = time.monotonic() + _RETRY_S
            while self._works and time.monotonic() < retry:
                try:  # the works that it has begun may still finish
                    self._note(self._engine.step())
                except Exception as error:
                    self._fail_all(error)
            self._queue.drop_ended()
            if self._queue.closed and not len(self._queue):
                return  # others have done the rest
            time.sleep(max(0.0, retry - time.monotonic()))


class Scheduler(Generic[Task, News, Outcome]):
    """Decodes the works of one model; the subclass of each task turns requests into works."""

    def __init__(
        self,
        engines: Sequence[Engine[Task, News, Outcome]],
        sizes: CacheCosts,
        limits: BatchLimits,
        *,
        devices: int = 1,
        max_queue: int,
        unit: str,
        observer: Observer,
    ) -> None:
        """Start a thread for each engine; the thread closes its engine at the end. The engines on
        each of the `devices` share the cache memory of `limits`; the other limits apply to each
        engine. `unit` is the plural noun for a request in messages."""
        self.limits = limits
        """Limits of a batch; the cache memory is that of all engines of a device together."""
        self._held_at_once = max(1, limits.max_rows * len(engines) // 4)
        each = limits.shared(len(engines), devices)
        self._open = OpenTickets()
        self._queue: RequestQueue[Work[Task, News, Outcome]] = RequestQueue(max_queue, unit)
        self._decoders = [Decoder(engine, sizes, self._queue, each, observer) for engine in engines]
        for decoder in self._decoders:
            decoder.start([other for other in self._decoders if other is not decoder])

    @property
    def queue_depth(self) -> int:
        """Number of works that no engine has taken yet."""
        return len(self._queue)

    @property
    def num_held(self) -> int:
        """Number of rows being decoded."""
        return sum(decoder.num_rows for decoder in self._decoders)

    @property
    def down(self) -> bool:
        """Whether no engine can decode: none starts, or this process has lost the GPU."""
        return all(decoder.down for decoder in self._decoders)

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by the cache of answers; 0 if the task has none."""
        return 0

    def abandon(self) -> None:
        """Fail all unfinished requests with NotReadyError."""
        self._open.abandon()

    def retire(self) -> None:
        """Accept no new works. Accepted works are finished, then the threads end."""
        self._queue.close()

    def close(self, timeout: float | None = None) -> None:
        """`retire`, and wait for the end."""
        self.retire()
        for decoder in self._decoders:
            decoder.join(timeout)

    def _put(
        self, works: Sequence[Work[Task, News, Outcome]], max_wait_s: float | None = None
    ) -> None:
        """Queue works, all or none. Raises OverloadedError, also if others would delay their end
        beyond `max_wait_s`, and NotReadyError once retired."""
        self._queue.put(works, max_wait_s)
        # Wake one of the busy decoders; idle ones wait on the queue themselves.
        if not any(decoder.idle for decoder in self._decoders):
            decoders = [decoder for decoder in self._decoders if decoder.open]
            if decoders:
                min(decoders, key=lambda decoder: decoder.num_rows + decoder.company).wake()

    def _held(self, ticket: Ticket[Any], queue: Callable[[], None]) -> HeldWork:
        """A work that `queue` puts into the queue later."""
        return HeldWork(ticket, queue, self._held_at_once)
