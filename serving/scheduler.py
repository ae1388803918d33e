"""One running batch a model: requests wait in a bounded queue and are decoded together.

Knows nothing of HTTP. A batch takes the oldest waiting request and whatever waits beside it with
the same beam size, within the limits of rows, padded tokens and cache memory. A finished, cancelled
or overdue sentence leaves at once. Rows do not yet join a batch that is running.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from serving.batches import BatchLimits, BatchRoom, demand
from serving.errors import RequestError
from serving.options import SearchOptions
from serving.request_queue import RequestQueue
from serving.search import BeamSearch, Finished, Sentence
from serving.ticket import Ticket
from serving.translator import Translation, Translator


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
    """Sentences in the batch when it started."""


@dataclass(frozen=True)
class Completed:
    """The last event of a ticket."""

    translation: Translation
    timing: Timing


class TranslationTicket(Ticket[Completed]):
    """A submitted text."""

    def __init__(self, sentence: Sentence | None, timeout_s: float | None) -> None:
        """A blank text has no sentence: nothing is to be decoded."""
        super().__init__(timeout_s)
        self.sentence = sentence
        self.started = 0.0
        """When it was first decoded, by the monotonic clock."""
        self.batch_size = 0

    async def events(self) -> AsyncIterator[Completed]:
        """What happens to the request, ending with Completed; leaving the loop early does not
        cancel, `cancel` does."""
        yield await self.wait()

    def start(self, batch_size: int) -> None:
        """Note the batch in which it is decoded, and when it first was."""
        self.started = self.started or time.monotonic()
        self.batch_size = batch_size

    def translated(self, translation: Translation) -> None:
        """Deliver the translation, unless the request has ended already."""
        now = time.monotonic()
        started = self.started or now
        timing = Timing(started - self.submitted, now - started, self.batch_size)
        self.complete(Completed(translation, timing))


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
        self._queue: RequestQueue[TranslationTicket] = RequestQueue(max_queue, "sentences")
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> TranslationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[Request]) -> list[TranslationTicket]:
        """Queue requests that arrive together, all or none.

        A RequestError says by its `index` which of them is at fault.
        """
        tickets = []
        for index, request in enumerate(requests):
            try:
                sentence = self._translator.prepare(
                    request.text, request.options, request.target_prefix
                )
            except RequestError as error:
                error.index = index
                raise
            tickets.append(TranslationTicket(sentence, request.timeout_s))
        self._queue.put([ticket for ticket in tickets if ticket.sentence is not None])
        for ticket in tickets:
            if ticket.sentence is None:
                ticket.translated(Translation(""))
        return tickets

    @property
    def queue_depth(self) -> int:
        """Sentences that wait."""
        return len(self._queue)

    def close(self, timeout: float | None = None) -> None:
        """Accept nothing more, finish what was accepted, end the thread."""
        self._queue.close()
        self._thread.join(timeout)

    def _run(self) -> None:
        while self._queue.wait():
            running = dict(enumerate(self._take()))
            try:
                if running:
                    self._decode(running)
            except Exception as error:  # the thread must outlive any failure of a batch
                for ticket in running.values():
                    ticket.fail(error)

    def _take(self) -> list[TranslationTicket]:
        """Remove the next batch from the queue: the oldest and those that fit beside it."""
        stepper = self._translator.stepper
        room = BatchRoom(stepper, self._limits)
        return self._queue.take(lambda ticket: room.admit(demand(_sentence(ticket), stepper)))

    def _decode(self, running: dict[int, TranslationTicket]) -> None:
        """Decode a batch; tickets leave `running` as they end."""
        for ticket in running.values():
            ticket.start(len(running))
        sentences = [_sentence(ticket) for ticket in running.values()]
        search = BeamSearch(self._translator.stepper, sentences)
        while search.live:
            for finished in search.step():
                self._deliver(running.pop(finished.index), finished)
            for index in [index for index, ticket in running.items() if ticket.expire()]:
                search.cancel(index)
                del running[index]
            self._queue.drop_ended()

    def _deliver(self, ticket: TranslationTicket, finished: Finished) -> None:
        try:
            outcome = self._translator.complete(_sentence(ticket), finished)
        except Exception as error:  # of this sentence alone: the others of its batch go on
            ticket.fail(error)
            return
        if isinstance(outcome, Sentence):  # the loop guard wants it decoded again
            ticket.sentence = outcome
            self._queue.put_back(ticket)
        else:
            ticket.translated(outcome)


def _sentence(ticket: TranslationTicket) -> Sentence:
    assert ticket.sentence is not None
    return ticket.sentence
