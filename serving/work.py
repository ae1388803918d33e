"""What is asked of a translation scheduler, and a sentence on its way through it."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from serving.batches import Demand
from serving.options import SearchOptions
from serving.search import Sentence
from serving.ticket import Ticket
from serving.translator import Translation


@dataclass(frozen=True, kw_only=True)
class Request:
    """One text to translate."""

    text: str
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
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


class Work:
    """A sentence to decode, with every ticket that waits for it."""

    def __init__(self, sentence: Sentence, ticket: TranslationTicket, demand: Demand) -> None:
        self.sentence, self.demand = sentence, demand
        self.key = sentence.key
        """What it is asked, before the loop guard changes anything."""
        self.submitted, self.deadline = ticket.submitted, ticket.deadline
        self.started = 0.0
        """When it was first decoded, by the monotonic clock."""
        self.batch_size = 0
        self._tickets = [ticket]
        self._lock = threading.Lock()
        self._ended = False

    @property
    def waited_s(self) -> float:
        """Seconds from submission until it was first decoded."""
        return self.started - self.submitted

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
