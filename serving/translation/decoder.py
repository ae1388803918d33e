"""A thread that sees to one engine: gives it what waits, and delivers what comes of it.

All that an engine decodes shares one budget of rows, padded source tokens and cache memory. A
finished sentence leaves at once, a cancelled or overdue one within a twentieth of a second.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Sequence

from serving.errors import DecoderLostError
from serving.queue.limits import BatchLimits, BatchRoom
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.search.sentence import Group, Sentence
from serving.search.stepper import CacheCosts
from serving.translation.answers import AnswerCache
from serving.translation.running import Engine, Joined, Outcome, Progress
from serving.translation.work import Work

MAX_OVERTAKEN_S = 0.5
"""Seconds for which smaller sentences may be taken before one that does not fit."""

_LOOK_S, _RETRY_S = 1.0, 1.0
"""Between looks whether an idle engine is there, and between tries to start one again."""

logger = logging.getLogger(__name__)


class Decoder:
    """Decodes what waits in a queue, perhaps beside others like it, on a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        sizes: CacheCosts,
        queue: RequestQueue[Work],
        limits: BatchLimits,
        answers: AnswerCache,
        observer: Observer,
    ) -> None:
        """`limits` are this engine's own."""
        self._engine, self._sizes, self._queue, self._limits = engine, sizes, queue, limits
        self._answers, self._observer = answers, observer
        self._works: dict[int, Work] = {}
        """What the engine decodes, by number."""
        self._numbers = itertools.count()
        self._resting: set[Group] = set()
        """Groups that others have just joined."""
        self._others: Sequence[Decoder] = ()
        self.idle = True
        """Whether it could begin at once; that ends while the queue is locked."""
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self, others: Sequence[Decoder]) -> None:
        """Begin, beside others that take from the same queue."""
        self._others = others
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait until all is decoded, once the queue is closed."""
        self._thread.join(timeout)

    @property
    def num_rows(self) -> int:
        """Sentences being decoded."""
        return len(self._works)

    @property
    def open(self) -> bool:
        """Whether others could join at once what it decodes."""
        return bool(self._works) and not self._resting

    def wake(self) -> None:
        """Have it look at the queue, though nothing of its own happens."""
        self._engine.wake()

    @property
    def resident_bytes(self) -> int:
        """Memory of the engine's own process, where it has one."""
        return self._engine.resident_bytes

    def _run(self) -> None:
        while self._works or self._queue.wait(_LOOK_S):
            if not self._works and self._engine.lost:  # nothing is lost with it
                self._restart()
            try:
                self._join()
                if self._works:
                    self._note(self._engine.step())
            except Exception as error:  # the thread must outlive any failure
                self._fail_all(error)
                self._restart()
            self.idle = not self._works
            self._queue.drop_ended()
        self._engine.close()

    def _join(self) -> None:
        """Take what fits beside the running sentences, oldest first."""
        if not len(self._queue):
            return
        room = BatchRoom(self._sizes, self._limits)
        for work in self._works.values():
            room.hold(work.demand)
        now = time.monotonic()

        def choose(work: Work) -> bool | None:
            if work.demand.group in self._resting:
                room.hold(work.demand)  # it is its turn soon
                return False
            if room.admit(work.demand):
                self.idle = False
                return True
            overtaken = now - work.submitted > MAX_OVERTAKEN_S
            return None if overtaken or room.full else False

        joining: dict[Group, dict[int, Work]] = {}
        for work in self._queue.take(choose, self._takers):
            number = next(self._numbers)
            joining.setdefault(work.demand.group, {})[number] = work
            self._works[number] = work  # all of them, before any can fail to join
        for group, works in joining.items():
            self._resting.add(group)
            self._engine.join({number: work.sentence for number, work in works.items()})

    def _takers(self) -> int:
        """Threads that could begin with what waits now: this one and all that idle."""
        return 1 + sum(other.idle for other in self._others)

    def _note(self, progress: Progress) -> None:
        self._resting.difference_update(progress.rested)
        for joined in progress.joined:
            self._note_joined(joined)
        for number, agreed in progress.agreed:
            if number in self._works:
                self._works[number].tell(agreed)
        for number, outcome in progress.outcomes:
            if number in self._works:
                self._deliver(self._works[number], outcome)
                del self._works[number]
        gone = [number for number, work in self._works.items() if work.expire()]
        if gone:
            for number in gone:
                del self._works[number]
            self._engine.cancel(gone)
        self._resting &= {work.demand.group for work in self._works.values()}

    def _note_joined(self, joined: Joined) -> None:
        works = [self._works[number] for number in joined.numbers if number in self._works]
        waits_s = [joined.began - work.submitted for work in works if not work.began]
        for work in works:
            work.start(joined.began, joined.encode_s, len(joined.lengths))
        self._observer.joined(waits_s, joined.lengths)

    def _deliver(self, work: Work, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            work.fail(outcome)
        elif isinstance(outcome, Sentence):  # the loop guard wants it decoded again
            work.again(outcome, self._sizes)
            self._queue.put_back(work)
        elif isinstance(outcome, list):  # alternatives to go on with
            for part in reversed(work.split(outcome, self._sizes)):
                self._queue.put_back(part)
        else:
            self._answers.put(work.key, outcome)
            self._observer.decoded(len(outcome.hypotheses[0].token_scores))
            work.complete(outcome)

    def _fail_all(self, error: Exception) -> None:
        for work in self._works.values():
            work.fail(error)
        self._works.clear()
        self._resting.clear()
        if not isinstance(error, DecoderLostError):
            logger.error("a decoder failed", exc_info=error)

    def _restart(self) -> None:
        self.idle = False
        self._observer.lost()
        logger.error("an engine has ended or failed; it is started again")
        while True:
            try:
                self._engine.restart()
                return
            except Exception:  # the machine may be short of something for a while
                logger.exception("it cannot be started, next try in %g s", _RETRY_S)
            self._queue.drop_ended()
            if self._queue.closed and not len(self._queue):
                return  # others have done the rest
            time.sleep(_RETRY_S)
