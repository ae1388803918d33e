"""One running batch a model: sentences join and leave it between steps.

Knows nothing of HTTP. Sentences of one beam size are decoded together, with and without shortlists
apart; those of other groups have batches of their own, which take turns and share one budget of
rows, padded source tokens and cache memory. A finished, cancelled or overdue sentence leaves at
once. Equal sentences in flight are decoded once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from serving.batches import BatchLimits, BatchRoom, Demand, Group, demand
from serving.errors import RequestError
from serving.options import SearchOptions
from serving.request_queue import RequestQueue
from serving.search import BeamSearch, Finished, Sentence
from serving.ticket import Ticket
from serving.translator import Translation, Translator

JOIN_EVERY = 4
"""Steps of a batch between joins: each copies the caches of those that are in it."""
MAX_OVERTAKEN_S = 0.5
"""Seconds for which smaller sentences may be taken before one that does not fit."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One text to translate."""

    text: str
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None is no deadline."""


@dataclass(frozen=True)
class Timing:
    """Where the time of a request went, in seconds."""

    queue_s: float
    decode_s: float
    batch_size: int
    """Sentences being decoded when it joined them, itself included."""


@dataclass(frozen=True)
class Completed:
    """The last event of a ticket."""

    translation: Translation
    timing: Timing


class TranslationTicket(Ticket[Completed]):
    """A submitted text."""

    async def events(self) -> AsyncIterator[Completed]:
        """What happens to the request, ending with Completed; leaving the loop early does not
        cancel, `cancel` does."""
        yield await self.wait()

    def translated(self, translation: Translation, started: float, batch_size: int) -> None:
        """Deliver the translation, unless the request has ended already."""
        now = time.monotonic()
        started = max(started, self.submitted)  # it may have come when another's was under way
        timing = Timing(started - self.submitted, now - started, batch_size)
        self.complete(Completed(translation, timing))


class _Work:
    """A sentence to decode, with every ticket that waits for it."""

    def __init__(self, sentence: Sentence, ticket: TranslationTicket, demand: Demand) -> None:
        self.sentence, self.demand = sentence, demand
        self.submitted = ticket.submitted
        self.started = 0.0
        """When it was first decoded, by the monotonic clock."""
        self.batch_size = 0
        self._tickets = [ticket]
        self._lock = threading.Lock()
        self._ended = False

    def share(self, ticket: TranslationTicket) -> bool:
        """Let another ticket wait for the same, unless it is too late."""
        with self._lock:
            if not self._ended:
                self._tickets.append(ticket)
            return not self._ended

    def expire(self) -> bool:
        """Whether nobody waits for it any more; overdue tickets fail now."""
        with self._lock:
            waiting = [ticket for ticket in self._tickets if not ticket.expire()]
            self._ended = self._ended or not waiting
            return self._ended

    def start(self, batch_size: int) -> None:
        """Note the batch in which it is decoded, and when it first was."""
        self.started = self.started or time.monotonic()
        self.batch_size = batch_size

    def complete(self, translation: Translation) -> None:
        """Deliver the translation to all who wait for it."""
        for ticket in self._end():
            ticket.translated(translation, self.started, self.batch_size)

    def fail(self, error: BaseException) -> None:
        """End it for all who wait for it."""
        for ticket in self._end():
            ticket.fail(error)

    def _end(self) -> list[TranslationTicket]:
        with self._lock:
            self._ended = True
            return self._tickets


class _Batch:
    """The running sentences of one group."""

    def __init__(self, translator: Translator, works: Sequence[_Work]) -> None:
        self.works: dict[int, _Work] = {}
        """By number in the search."""
        self._translator = translator
        self._steps_since_join = 0
        sentences = [work.sentence for work in works]
        stepper = translator.stepper_for(shortlisted=sentences[0].shortlisted)
        self._search = BeamSearch(stepper, sentences)
        self._note(range(len(works)), works)

    @property
    def may_be_joined(self) -> bool:
        """Whether the last join is long enough ago."""
        return self._steps_since_join >= JOIN_EVERY

    def join(self, works: Sequence[_Work]) -> None:
        """Let sentences join."""
        self._note(self._search.add([work.sentence for work in works]), works)

    def step(self) -> list[tuple[_Work, Finished]]:
        """One token of every sentence; returns those that are done. Those that nobody waits for any
        more have left before the next step."""
        found = [(self.works.pop(done.index), done) for done in self._search.step()]
        self._steps_since_join += 1
        for number in [number for number, work in self.works.items() if work.expire()]:
            self._search.cancel(number)
            del self.works[number]
        return found

    def _note(self, numbers: Sequence[int], works: Sequence[_Work]) -> None:
        self.works.update(zip(numbers, works, strict=True))
        for work in works:
            work.start(len(self.works))
        self._steps_since_join = 0


class Scheduler:
    """Decodes requests of one model on a thread of its own."""

    def __init__(
        self,
        translator: Translator,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
    ) -> None:
        self._translator, self._limits = translator, limits or BatchLimits()
        self._queue: RequestQueue[_Work] = RequestQueue(max_queue, "sentences")
        self._submitting = threading.Lock()
        self._in_flight: WeakValueDictionary[object, _Work] = WeakValueDictionary()
        self._batches: dict[Group, _Batch] = {}
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> TranslationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[Request]) -> list[TranslationTicket]:
        """Queue requests that arrive together, all or none.

        A RequestError says by its `index` which of them is at fault.
        """
        prepared: list[tuple[Sentence | None, TranslationTicket]] = []
        for index, request in enumerate(requests):
            try:
                sentence = self._translator.prepare(
                    request.text, request.options, request.target_prefix
                )
            except RequestError as error:
                error.index = index
                raise
            prepared.append((sentence, TranslationTicket(request.timeout_s)))
        tickets = [ticket for _, ticket in prepared]
        try:
            with self._submitting:
                self._enqueue([(s, ticket) for s, ticket in prepared if s is not None])
        except BaseException:
            for ticket in tickets:  # of which some may have joined others already
                ticket.cancel()
            raise
        for sentence, ticket in prepared:
            if sentence is None:  # a blank text
                ticket.translated(Translation(""), ticket.submitted, 0)
        return tickets

    @property
    def queue_depth(self) -> int:
        """Sentences that wait."""
        return len(self._queue)

    def close(self, timeout: float | None = None) -> None:
        """Accept nothing more, finish what was accepted, end the thread."""
        self._queue.close()
        self._thread.join(timeout)

    def _enqueue(self, prepared: Sequence[tuple[Sentence, TranslationTicket]]) -> None:
        """Queue what is not in flight already."""
        new: dict[object, _Work] = {}
        for sentence, ticket in prepared:
            key = (tuple(sentence.source), sentence.options, tuple(sentence.target_prefix))
            same = new.get(key) or self._in_flight.get(key)
            if same is None or not same.share(ticket):
                new[key] = _Work(sentence, ticket, demand(sentence, self._translator.sizes))
        self._queue.put(list(new.values()))
        self._in_flight.update(new)

    def _run(self) -> None:
        while self._batches or self._queue.wait():
            self._join()
            for group in list(self._batches):
                self._step(group)
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

        def choose(work: _Work) -> bool | None:
            if work.demand.group in waiting:
                room.hold(work.demand)  # it is its turn soon
                return False
            if room.admit(work.demand):
                return True
            overtaken = now - work.submitted > MAX_OVERTAKEN_S
            return None if overtaken or room.full else False

        joining: dict[Group, list[_Work]] = {}
        for work in self._queue.take(choose):
            joining.setdefault(work.demand.group, []).append(work)
        for group, works in joining.items():
            self._begin(group, works)

    def _begin(self, group: Group, works: list[_Work]) -> None:
        try:
            if group in self._batches:
                self._batches[group].join(works)
            else:
                self._batches[group] = _Batch(self._translator, works)
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

    def _deliver(self, work: _Work, finished: Finished) -> None:
        try:
            outcome = self._translator.complete(work.sentence, finished)
        except Exception as error:  # of this sentence alone: the others of its batch go on
            work.fail(error)
            return
        if isinstance(outcome, Sentence):  # the loop guard wants it decoded again
            work.sentence, work.demand = outcome, demand(outcome, self._translator.sizes)
            self._queue.put_back(work)
        else:
            work.complete(outcome)
