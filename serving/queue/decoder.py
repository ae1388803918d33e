"""Requests of one model, whatever the task: queued, and decoded by one or several engines.

A thread sees to each engine: it gives it what waits, and delivers what comes of it.

All that an engine decodes shares one budget of rows, padded source tokens and cache memory. What is
done leaves at once, what is cancelled or overdue within a twentieth of a second. What does not fit
the memory of a device is decoded again from its beginning, half as many rows at once.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Generic

from serving.errors import DecoderLostError, DeviceMemoryError, OverloadedError, ServingError
from serving.queue.engine import Engine, Joined, News, Outcome, Progress, Task, Work
from serving.queue.limits import BatchLimits, BatchRoom
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.queue.ticket import OpenTickets
from serving.search.stepper import CacheCosts

MAX_OVERTAKEN_S = 0.5
"""Seconds for which smaller works may be taken before one that does not fit."""

_LOOK_S, _RETRY_S = 1.0, 1.0
"""Between looks whether an idle engine is there, and between tries to start one again."""
_YIELD_S = 0.001
"""For which one leaves what waits to another that can begin sooner."""
FEWER_S = 60.0
"""Seconds with half the rows, after more did not fit the device's memory, until all are tried
again."""

logger = logging.getLogger(__name__)


class Decoder(Generic[Task, News, Outcome]):
    """Decodes what waits in a queue, perhaps beside others like it, on a thread of its own."""

    def __init__(
        self,
        engine: Engine[Task, News, Outcome],
        sizes: CacheCosts,
        queue: RequestQueue[Work[Task, News, Outcome]],
        limits: BatchLimits,
        observer: Observer,
    ) -> None:
        """`limits` are this engine's own."""
        self._engine, self._sizes, self._queue, self._limits = engine, sizes, queue, limits
        self._observer = observer
        self._works: dict[int, Work[Task, News, Outcome]] = {}
        """What the engine decodes, by number."""
        self._numbers = itertools.count()
        self._resting: set[Hashable] = set()
        """Groups that others have just joined."""
        self._most_rows, self._fewer_since = limits.max_rows, -math.inf
        """Rows that are to fit, and since when these are fewer, by the monotonic clock."""
        self._others: Sequence[Decoder[Any, Any, Any]] = ()
        self.idle = True
        """Whether it could begin at once; that ends while the queue is locked."""
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self, others: Sequence[Decoder[Any, Any, Any]]) -> None:
        """Begin, beside others that take from the same queue."""
        self._others = others
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait until all is decoded, once the queue is closed."""
        self._thread.join(timeout)

    @property
    def num_rows(self) -> int:
        """Rows being decoded; what is read or searched for counts with the rows that it asks
        for."""
        return sum(work.demand.rows for work in list(self._works.values()))

    @property
    def company(self) -> int:
        """Rows that are decoded beside its own, for other models."""
        return self._engine.company

    @property
    def open(self) -> bool:
        """Whether others could join at once what it decodes."""
        return bool(self._works) and not self._resting

    def wake(self) -> None:
        """Have it look at the queue, though nothing of its own happens."""
        self._engine.wake()

    def _run(self) -> None:
        while self._works or self._queue.wait(_LOOK_S):
            if self._engine.lost:
                self._restart()
            try:
                self._join()
                if self._works:
                    self._note(self._engine.step())
                elif len(self._queue):
                    time.sleep(_YIELD_S)
            except DeviceMemoryError as error:
                self._halve(error)
            except Exception as error:  # the thread must outlive any failure
                self._fail_all(error)
                self._restart()
            self.idle = not self._works
            self._queue.drop_ended()
        self.idle = False
        self._engine.close()

    def _join(self) -> None:
        """Take what fits beside what runs, oldest first; what comes is for those that idle, if any
        do, and of these for the one whose processor has the least to do."""
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
        """Whether another can begin sooner with what waits."""
        return other.idle and bool(self._works or other.company < self.company)

    def _takers(self) -> int:
        """Threads that could begin with what waits now: this one and all that idle."""
        return 1 + sum(other.idle for other in self._others)

    def _limits_at(self, now: float) -> BatchLimits:
        """What a batch may hold now: as few rows as at last, while any is decoded that has not
        fitted, so that this one ends."""
        if now - self._fewer_since > FEWER_S and not any(w.again for w in self._works.values()):
            return self._limits
        return replace(self._limits, max_rows=self._most_rows)

    def _note(self, progress: Progress[News, Outcome]) -> None:
        """Pass on the news of an engine; drop what nobody waits for any more.

        Raises the DeviceMemoryError with which any task has left.
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
                for instead in reversed(works[number].finish(outcome)):
                    self._queue.put_back(instead)
                del works[number]
        short: DeviceMemoryError | None = None
        for number, error in progress.failed:
            if isinstance(error, DeviceMemoryError):
                short = error
            elif number in works:
                works.pop(number).fail(error)
        gone = [number for number, work in works.items() if work.expire()]
        if gone:
            for number in gone:
                del works[number]
            self._engine.cancel(gone)
        if self._resting:
            self._resting &= {work.demand.group for work in works.values()}
        if short is not None:
            raise short

    def _note_joined(self, joined: Joined) -> None:
        works = [self._works[number] for number in joined.numbers if number in self._works]
        waits_s = [joined.began - work.submitted for work in works if not work.began]
        for work in works:
            work.began = True
            work.start(joined.began, joined.encode_s, len(joined.lengths))
        self._observer.joined(waits_s, joined.lengths)

    def _halve(self, error: DeviceMemoryError) -> None:
        """All that was running goes back to the queue, from which half as many rows are taken at
        once for a while; what does not fit alone fails."""
        works = list(self._works.values())
        rows = self.num_rows
        self._works.clear()
        self._resting.clear()
        if len(works) > 1:
            self._most_rows, self._fewer_since = max(1, rows // 2), time.monotonic()
            logger.warning(
                "%d rows do not fit the device's memory: %d at once are decoded from here on; "
                "lower MACARON_MAX_BATCH_ROWS to that (%s)",
                rows,
                self._most_rows,
                str(error),  # not the error, whose frames hold the memory that is short
            )
        elif works:
            asked = works[0].demand
            works.pop().fail(
                OverloadedError(
                    f"the device's memory does not hold this request alone (rows {asked.rows}, "
                    f"beam_size {asked.beam_size}, {asked.source_length} source ids, "
                    f"{asked.slots} slots of caches); send less at once, or have the server refuse "
                    "it: lower MACARON_MAX_BATCH_TOKENS or MACARON_MAX_CACHE_BYTES"
                )
            )
        for work in reversed(works):
            work.again = True
            self._queue.put_back(work)
        self._start_again()

    def _fail_all(self, error: Exception) -> None:
        """All that was running fails, with an error after which clients may try again."""
        logger.error("a decoder failed", exc_info=error)
        if not isinstance(error, ServingError):
            cause, error = error, DecoderLostError("decoding has failed; try again")
            error.__cause__ = cause
        for work in self._works.values():
            work.fail(error)
        self._works.clear()
        self._resting.clear()

    def _restart(self) -> None:
        self.idle = False
        self._observer.lost()
        logger.error("an engine has ended or failed; it is started again")
        self._start_again()

    def _start_again(self) -> None:
        while True:
            try:
                self._engine.restart()
                return
            except Exception:  # the machine may be short of something for a while
                logger.exception("it cannot be started, next try in %g s", _RETRY_S)
            retry = time.monotonic() + _RETRY_S
            while self._works and time.monotonic() < retry:
                try:  # what it had begun it may bring to an end all the same
                    self._note(self._engine.step())
                except Exception as error:
                    self._fail_all(error)
            self._queue.drop_ended()
            if self._queue.closed and not len(self._queue):
                return  # others have done the rest
            time.sleep(max(0.0, retry - time.monotonic()))


class Scheduler(Generic[Task, News, Outcome]):
    """Decodes works of one model; the subclass of each task makes them of requests."""

    def __init__(
        self,
        engines: Sequence[Engine[Task, News, Outcome]],
        sizes: CacheCosts,
        limits: BatchLimits,
        *,
        max_queue: int,
        unit: str,
        observer: Observer,
    ) -> None:
        """Start a thread for each engine, which it is to close at the end. They share the memory of
        `limits`; the other limits are each one's own. `unit` is what messages call a request, in
        the plural."""
        self.limits = limits
        """What a batch may hold; its memory is that of all engines together."""
        each = replace(limits, max_cache_bytes=limits.max_cache_bytes // len(engines))
        self._open = OpenTickets()
        self._queue: RequestQueue[Work[Task, News, Outcome]] = RequestQueue(max_queue, unit)
        self._decoders = [Decoder(engine, sizes, self._queue, each, observer) for engine in engines]
        for decoder in self._decoders:
            decoder.start([other for other in self._decoders if other is not decoder])

    @property
    def queue_depth(self) -> int:
        """How many works wait that no engine has taken yet."""
        return len(self._queue)

    @property
    def num_held(self) -> int:
        """Rows being decoded: 0 where nothing goes on."""
        return sum(decoder.num_rows for decoder in self._decoders)

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by a cache of answers; 0 where the task has none."""
        return 0

    def abandon(self) -> None:
        """Fail whatever has not ended, with NotReadyError."""
        self._open.abandon()

    def retire(self) -> None:
        """Accept nothing more; what was accepted is finished, then the threads end."""
        self._queue.close()

    def close(self, timeout: float | None = None) -> None:
        """`retire`, and wait for the end."""
        self.retire()
        for decoder in self._decoders:
            decoder.join(timeout)

    def _put(
        self, works: Sequence[Work[Task, News, Outcome]], max_wait_s: float | None = None
    ) -> None:
        """Queue works, all or none; raises OverloadedError, also where they would not be begun in
        `max_wait_s`, or NotReadyError once retired."""
        self._queue.put(works, max_wait_s)
        # Have one that decodes take what has come; those that idle watch the queue themselves.
        if not any(decoder.idle for decoder in self._decoders):
            decoders = [decoder for decoder in self._decoders if decoder.open]
            if decoders:
                min(decoders, key=lambda decoder: decoder.num_rows + decoder.company).wake()
