"""What is asked of a translation scheduler, and a sentence on its way through it."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from serving.queue.limits import Demand, demand
from serving.queue.ticket import Ticket
from serving.search.options import SearchOptions
from serving.search.sentence import Sentence
from serving.search.stepper import CacheCosts
from serving.text.stream import TextStream
from serving.text.terms import Terms
from serving.translation.results import Translation, gathered


@dataclass(frozen=True, kw_only=True)
class Request:
    """One text to translate."""

    text: str
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = field(default_factory=Terms)
    stream: bool = False
    """Whether its ticket tells of what is certain before it ends."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None is no deadline."""


@dataclass(frozen=True)
class Timing:
    """Where the time of a request went, in seconds."""

    queue_s: float
    encode_s: float
    """In the encoder, together with those that joined at the same time."""
    decode_s: float
    batch_size: int
    """Sentences being decoded when it joined them, itself included."""


@dataclass(frozen=True)
class Partial:
    """The text with which the translation begins, whatever still comes; each begins with the one
    before."""

    text: str


@dataclass(frozen=True)
class Completed:
    """The last event of a ticket."""

    translation: Translation
    timing: Timing


class TranslationTicket(Ticket[Completed]):
    """A submitted text."""

    _told = ""

    async def events(self) -> AsyncIterator[Partial | Completed]:
        """What happens to the request, ending with Completed; raises the ServingError that ends it.
        Leaving the loop early does not cancel, `cancel` does."""
        seen = ""
        async for done in self._changes():
            if self._told != seen:
                seen = self._told
                yield Partial(seen)
            if done:
                yield self.result()

    def tell(self, text: str) -> None:
        """What is certain by now."""
        self._told = text
        self._wake()

    def translated(
        self, translation: Translation, started: float, encode_s: float, batch_size: int
    ) -> None:
        """Deliver the translation, unless the request has ended already."""
        now = time.monotonic()
        began = max(started, self.submitted)  # it may have come when another's was under way
        encode_s = max(0.0, encode_s - (began - started))
        timing = Timing(began - self.submitted, encode_s, now - began - encode_s, batch_size)
        self.complete(Completed(translation, timing))


class Work:
    """A sentence to decode, with every ticket that waits for it."""

    def __init__(
        self,
        sentence: Sentence,
        ticket: TranslationTicket,
        demand: Demand,
        stream: TextStream | None = None,
    ) -> None:
        """`stream` makes text of what is told."""
        self.sentence, self.demand = sentence, demand
        self.key = sentence.key
        """What it is asked, before the loop guard changes anything."""
        self.submitted, self.deadline = ticket.submitted, ticket.deadline
        self._started = self._encode_s = 0.0
        self._batch_size = 0
        self._tickets = [ticket]
        self._lock = threading.Lock()
        self._ended = False
        self._stream = stream
        self._agreed: list[int] = []
        self._text = ""

    @property
    def began(self) -> bool:
        """Whether it has been in a batch."""
        return self._started > 0

    def share(self, ticket: TranslationTicket) -> bool:
        """Let another ticket wait for the same, unless it is too late."""
        with self._lock:
            if not self._ended:
                self._tickets.append(ticket)
                ticket.tell(self._text)
            return not self._ended

    def expire(self) -> bool:
        """Whether nobody waits for it any more; overdue tickets fail now."""
        with self._lock:
            waiting = [ticket for ticket in self._tickets if not ticket.expire()]
            self._ended = self._ended or not waiting
            return self._ended

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Note when it was taken into a batch, by the monotonic clock, and what the encoder took;
        of several times the first counts."""
        self._started = self._started or began
        self._encode_s += encode_s
        self._batch_size = batch_size

    def tell(self, agreed: Sequence[int]) -> None:
        """Tell what is certain, prefix included."""
        if self._stream is None or len(agreed) <= len(self._agreed):
            return
        new = "".join(map(self._stream.push, agreed[len(self._agreed) :]))
        self._agreed = list(agreed)
        if not new:
            return
        with self._lock:
            self._text += new
            for ticket in self._tickets:
                ticket.tell(self._text)

    def again(self, sentence: Sentence, sizes: CacheCosts) -> None:
        """Have another sentence decoded in its place; what has been told stays."""
        prefix = len(sentence.target_prefix)
        if len(self._agreed) > prefix:
            counted = sentence.counted + len(self._agreed) - prefix
            sentence = replace(sentence, target_prefix=tuple(self._agreed), counted=counted)
        self.sentence, self.demand = sentence, demand(sentence, sizes)

    def split(self, sentences: Sequence[Sentence], sizes: CacheCosts) -> list[Work]:
        """Works whose results, gathered, are this one's."""
        parts = [_Part(self) for _ in sentences]
        _Gathering(self, parts)
        return [
            Work(sentence, part, demand(sentence, sizes))
            for sentence, part in zip(sentences, parts, strict=True)
        ]

    def complete(self, translation: Translation) -> None:
        """Deliver the translation to all who wait for it."""
        for ticket in self._end():
            ticket.translated(translation, self._started, self._encode_s, self._batch_size)

    def fail(self, error: BaseException) -> None:
        """End it for all who wait for it."""
        for ticket in self._end():
            ticket.fail(error)

    def _end(self) -> list[TranslationTicket]:
        with self._lock:
            self._ended = True
            return self._tickets


class _Part(TranslationTicket):
    """Waits for a part of a work, as long as anyone waits for the whole."""

    def __init__(self, whole: Work) -> None:
        super().__init__()
        self._whole = whole

    def expire(self) -> bool:
        """Whether the part has ended, or nobody waits for the whole."""
        if not self.done and self._whole.expire():
            self.cancel()
        return self.done


class _Gathering:
    """Ends a work when its parts have ended, or the first of them fails."""

    def __init__(self, whole: Work, parts: Sequence[_Part]) -> None:
        self._whole, self._parts, self._left = whole, parts, len(parts)
        self._lock = threading.Lock()
        for part in parts:
            part.when_done(lambda part=part: self._ended(part))  # type: ignore[misc]

    def _ended(self, part: _Part) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        try:
            part.result()
            if last:
                results = [other.result() for other in self._parts]
                self._whole.complete(gathered([result.translation for result in results]))
        except Exception as error:
            self._whole.fail(error)
