"""One running batch a model: requests wait in a bounded queue and are decoded together.

Knows nothing of HTTP. A batch takes the oldest waiting request and whatever waits beside it with
the same beam size, within the limits of rows, padded tokens and cache memory. A finished, cancelled
or overdue sentence leaves at once. Rows do not yet join a batch that is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from serving.batches import BatchLimits, BatchRoom, demand
from serving.errors import (
    CancelledError,
    DeadlineExceededError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from serving.options import SearchOptions
from serving.search import BeamSearch, Finished, Sentence
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


class Ticket:
    """A submitted request."""

    def __init__(self, sentence: Sentence | None, deadline: float) -> None:
        self.sentence, self.deadline = sentence, deadline
        self.submitted = time.monotonic()
        self.started = 0.0
        self.batch_size = 0
        self._future: Future[Completed] = Future()

    def result(self, timeout: float | None = None) -> Completed:
        """Wait for the translation; raises the ServingError that ended the request."""
        return self._future.result(timeout)

    async def wait(self) -> Completed:
        """`result` for coroutines."""
        inner = asyncio.wrap_future(self._future)
        # Where nobody waits any more, an error is nobody's.
        inner.add_done_callback(lambda future: future.cancelled() or future.exception())
        return await asyncio.shield(inner)

    async def events(self) -> AsyncIterator[Completed]:
        """What happens to the request, ending with Completed; leaving the loop early does not
        cancel, `cancel` does."""
        yield await self.wait()

    def cancel(self) -> None:
        """Give the request up; its row is freed before the next step."""
        self.fail(CancelledError("the request was cancelled"))

    @property
    def done(self) -> bool:
        """Whether the request has ended, in whatever way."""
        return self._future.done()

    def complete(self, translation: Translation) -> None:
        """Deliver the translation, unless the request has ended already."""
        now = time.monotonic()
        started = self.started or now
        timing = Timing(started - self.submitted, now - started, self.batch_size)
        with contextlib.suppress(InvalidStateError):
            self._future.set_result(Completed(translation, timing))

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended already."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_exception(error)


class Scheduler:
    """Decodes requests of one model on a thread of its own."""

    def __init__(
        self,
        translator: Translator,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
    ) -> None:
        self._translator = translator
        self._max_queue, self._limits = max_queue, limits or BatchLimits()
        self._waiting: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Ticket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[Request]) -> list[Ticket]:
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
            timeout = float("inf") if request.timeout_s is None else request.timeout_s
            tickets.append(Ticket(sentence, time.monotonic() + timeout))
        with self._changed:
            if self._closing:
                raise NotReadyError("the server is shutting down; try again later")
            self._drop_ended()
            if len(self._waiting) + len(tickets) > self._max_queue:
                raise OverloadedError(
                    f"the queue holds at most {self._max_queue} sentences and has "
                    f"{len(self._waiting)}; try again later"
                )
            for ticket in tickets:
                if ticket.sentence is None:
                    ticket.complete(Translation(""))
                else:
                    self._waiting.append(ticket)
            self._changed.notify()
        return tickets

    @property
    def queue_depth(self) -> int:
        """Sentences that wait."""
        return len(self._waiting)

    def close(self, timeout: float | None = None) -> None:
        """Accept nothing more, finish what was accepted, end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                running = dict(enumerate(self._take()))
            try:
                if running:
                    self._decode(running)
            except Exception as error:  # the thread must outlive any failure of a batch
                for ticket in running.values():
                    ticket.fail(error)

    def _take(self) -> list[Ticket]:
        """Remove the next batch from the queue: the oldest and those that fit beside it."""
        self._drop_ended()
        batch: list[Ticket] = []
        left: deque[Ticket] = deque()
        stepper = self._translator.stepper
        room = BatchRoom(stepper, self._limits)
        for ticket in self._waiting:
            fits = room.admit(demand(_sentence(ticket), stepper))
            (batch if fits else left).append(ticket)
        self._waiting = left
        return batch

    def _decode(self, running: dict[int, Ticket]) -> None:
        """Decode a batch; tickets leave `running` as they end."""
        now = time.monotonic()
        for ticket in running.values():
            ticket.started = ticket.started or now
            ticket.batch_size = len(running)
        sentences = [_sentence(ticket) for ticket in running.values()]
        search = BeamSearch(self._translator.stepper, sentences)
        while search.live:
            for finished in search.step():
                self._deliver(running.pop(finished.index), finished)
            for index in [index for index, ticket in running.items() if self._drop(ticket)]:
                search.cancel(index)
                del running[index]
            if self._waiting:
                with self._changed:
                    self._drop_ended()

    def _deliver(self, ticket: Ticket, finished: Finished) -> None:
        try:
            outcome = self._translator.complete(_sentence(ticket), finished)
        except Exception as error:  # of this sentence alone: the others of its batch go on
            ticket.fail(error)
            return
        if isinstance(outcome, Sentence):  # the loop guard wants it decoded again
            ticket.sentence = outcome
            with self._changed:
                self._waiting.appendleft(ticket)
        else:
            ticket.complete(outcome)

    def _drop_ended(self) -> None:
        """Remove waiting tickets that have ended or are overdue; the lock must be held."""
        self._waiting = deque(ticket for ticket in self._waiting if not self._drop(ticket))

    def _drop(self, ticket: Ticket) -> bool:
        """Whether the ticket has ended or is overdue, in which case it fails now."""
        if not ticket.done and time.monotonic() > ticket.deadline:
            ticket.fail(DeadlineExceededError("not finished before the deadline"))
        return ticket.done


def _sentence(ticket: Ticket) -> Sentence:
    assert ticket.sentence is not None
    return ticket.sentence
