"""A thread that decodes: running batches that sentences join and leave between steps.

Sentences of one beam size are decoded together, with and without shortlists apart; those of other
groups have batches of their own, which take turns and share one budget of rows, padded source
tokens and cache memory. A finished, cancelled or overdue sentence leaves at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from serving.answers import AnswerCache
from serving.batches import BatchLimits, BatchRoom, Group
from serving.hypotheses import Finished, Sentence
from serving.observer import Observer
from serving.request_queue import RequestQueue
from serving.search import BeamSearch
from serving.translator import Translator
from serving.work import Work

JOIN_EVERY = 2
"""Steps of a batch between joins: each runs the encoder on few sentences."""
MAX_OVERTAKEN_S = 0.5
"""Seconds for which smaller sentences may be taken before one that does not fit."""


class _Batch:
    """The running sentences of one group."""

    def __init__(self, translator: Translator, works: Sequence[Work], observer: Observer) -> None:
        self.works: dict[int, Work] = {}
        """By number in the search."""
        self._streamed: set[int] = set()
        self._translator, self._observer = translator, observer
        self._steps_since_join = 0
        sentences = [work.sentence for work in works]
        stepper = translator.stepper_for(shortlisted=sentences[0].shortlisted)
        began = time.monotonic()
        self._search = BeamSearch(stepper, sentences)
        self._note(range(len(works)), works, began)

    @property
    def may_be_joined(self) -> bool:
        """Whether the last join is long enough ago."""
        return self._steps_since_join >= JOIN_EVERY

    def join(self, works: Sequence[Work]) -> None:
        """Let sentences join."""
        began = time.monotonic()
        self._note(self._search.add([work.sentence for work in works]), works, began)

    def step(self) -> list[tuple[Work, Finished]]:
        """One token of every sentence; returns those that are done. Those that nobody waits for any
        more have left before the next step."""
        found = [(self.works.pop(done.index), done) for done in self._search.step()]
        self._steps_since_join += 1
        self._streamed &= self.works.keys()
        for number in self._streamed:
            self.works[number].tell(self._search.agreed(number))
        for number in [number for number, work in self.works.items() if work.expire()]:
            self._search.cancel(number)
            del self.works[number]
        return found

    def _note(self, numbers: Sequence[int], works: Sequence[Work], began: float) -> None:
        self.works.update(zip(numbers, works, strict=True))
        waited_s = [began - work.submitted for work in works if not work.began]
        for number, work in zip(numbers, works, strict=True):
            work.start(began, self._search.encode_s, len(self.works))
            if work.sentence.streamed:
                self._streamed.add(number)
        self._steps_since_join = 0
        lengths = [len(work.sentence.source) for work in self.works.values()]
        self._observer.joined(waited_s, lengths)


class Decoder:
    """Decodes what waits in a queue, perhaps beside others like it, on a thread of its own."""

    def __init__(
        self,
        translator: Translator,
        queue: RequestQueue[Work],
        limits: BatchLimits,
        answers: AnswerCache,
        observer: Observer,
    ) -> None:
        """`limits` are this thread's own."""
        self._translator, self._queue, self._limits = translator, queue, limits
        self._answers, self._observer = answers, observer
        self._batches: dict[Group, _Batch] = {}
        self._others: Sequence[Decoder] = ()
        self._idle = True
        """Whether it has nothing to decode; it ends while the queue is locked."""
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
        return sum(len(batch.works) for batch in list(self._batches.values()))

    def _run(self) -> None:
        while self._batches or self._queue.wait():
            self._join()
            for group in list(self._batches):
                self._step(group)
            self._idle = not self._batches
            self._queue.drop_ended()

    def _join(self) -> None:
        """Take what fits beside the running sentences, oldest first, into their batches."""
        if not len(self._queue):
            return
        waiting = {group for group, batch in self._batches.items() if not batch.may_be_joined}
        room = BatchRoom(self._translator.sizes, self._limits)
        for batch in self._batches.values():
            for work in batch.works.values():
                room.hold(work.demand)
        now = time.monotonic()

        def choose(work: Work) -> bool | None:
            if work.demand.group in waiting:
                room.hold(work.demand)  # it is its turn soon
                return False
            if room.admit(work.demand):
                self._idle = False
                return True
            overtaken = now - work.submitted > MAX_OVERTAKEN_S
            return None if overtaken or room.full else False

        joining: dict[Group, list[Work]] = {}
        for work in self._queue.take(choose, self._takers):
            joining.setdefault(work.demand.group, []).append(work)
        for group, works in joining.items():
            self._begin(group, works)

    def _takers(self) -> int:
        """Threads that could begin with what waits now: this one and all that idle."""
        return 1 + sum(other._idle for other in self._others)

    def _begin(self, group: Group, works: list[Work]) -> None:
        try:
            if group in self._batches:
                self._batches[group].join(works)
            else:
                self._batches[group] = _Batch(self._translator, works, self._observer)
        except Exception as error:  # the thread must outlive any failure
            for work in works:
                work.fail(error)

    def _step(self, group: Group) -> None:
        batch = self._batches[group]
        try:
            finished = batch.step()
        except Exception as error:  # the thread must outlive any failure of a batch
            del self._batches[group]
            for work in batch.works.values():
                work.fail(error)
            return
        if not batch.works:
            del self._batches[group]
        for work, done in finished:
            self._deliver(work, done)

    def _deliver(self, work: Work, finished: Finished) -> None:
        try:
            outcome = self._translator.complete(work.sentence, finished)
        except Exception as error:  # of this sentence alone: the others of its batch go on
            work.fail(error)
            return
        if isinstance(outcome, Sentence):  # the loop guard wants it decoded again
            work.again(outcome, self._translator.sizes)
            self._queue.put_back(work)
        elif isinstance(outcome, list):  # alternatives to go on with
            for part in reversed(work.split(outcome, self._translator.sizes)):
                self._queue.put_back(part)
        else:
            self._answers.put(work.key, outcome)
            self._observer.decoded(len(outcome.hypotheses[0].token_scores))
            work.complete(outcome)
