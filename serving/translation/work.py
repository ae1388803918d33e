"""A sentence on its way through the scheduler, with all who wait for its translation."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from serving.checking.invariants import FAULT_KINDS
from serving.queue.engine import Work
from serving.queue.observer import Observer
from serving.search.sentence import Sentence
from serving.search.stepper import CacheCosts
from serving.text.stream import TextStream
from serving.translation.answers import AnswerCache
from serving.translation.demand import demand
from serving.translation.results import Again, Done, SentenceOutcome, Split, Translation, gathered
from serving.translation.ticket import TranslationTicket

_TranslationWork = Work[Sentence, list[int], SentenceOutcome]


class SentenceWork(_TranslationWork):
    """A sentence to decode, with every ticket that waits for it."""

    def __init__(
        self,
        sentence: Sentence,
        ticket: TranslationTicket,
        sizes: CacheCosts,
        *,
        stream: TextStream | None,
        answers: AnswerCache | None,
        observer: Observer,
    ) -> None:
        """`stream` makes text of the news; `answers`, where there is
        a cache, gets the translation."""
        super().__init__(sentence, demand(sentence, sizes), ticket.submitted, ticket.deadline)
        self._key = sentence.key
        """What it is asked, before the loop guard changes anything."""
        self._sizes, self._answers, self._observer = sizes, answers, observer
        self._started = self._encode_s = 0.0
        self._batch_size = 0
        self._tickets = [ticket]
        self._lock = threading.Lock()
        self._ended = False
        self._stream = stream
        self._agreed: list[int] = []
        self._text = ""
        self._parts: list[Translation | None] = []
        """Translations of the sentences that it was split into, as they come."""

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
        """Note when it was taken into a batch, of several times the first, and what the encoder
        took in all."""
        super().start(began, encode_s, batch_size)
        self._started = self._started or began
        self._encode_s += encode_s
        self._batch_size = batch_size

    def tell(self, news: list[int]) -> None:
        """Stream what is certain, prefix included."""
        if self._stream is None or len(news) <= len(self._agreed):
            return
        new = "".join(map(self._stream.push, news[len(self._agreed) :]))
        self._agreed = list(news)
        if not new:
            return
        with self._lock:
            self._text += new
            for ticket in self._tickets:
                ticket.tell(self._text)

    def finish(self, outcome: SentenceOutcome) -> Sequence[_TranslationWork]:
        """Deliver the translation, or go on with what the outcome asks for; what has been told
        stays."""
        match outcome:
            case Done(translation):
                self._complete(translation)
                return ()
            case Again(sentence):
                self._replace(sentence)
                return (self,)
            case Split(sentences):
                self._parts = [None] * len(sentences)
                return [
                    PartWork(self, number, sentence, self._sizes)
                    for number, sentence in enumerate(sentences)
                ]

    def fail(self, error: Exception) -> None:
        """End it for all who wait for it."""
        for ticket in self._end():
            ticket.fail(error)

    def take_part(self, number: int, translation: Translation) -> None:
        """Note the translation of one of its parts; the last to come completes it."""
        with self._lock:
            self._parts[number] = translation
            parts = [part for part in self._parts if part is not None]
        if len(parts) == len(self._parts):
            self._complete(gathered(parts))

    def _replace(self, sentence: Sentence) -> None:
        """Have another sentence decoded in its place, which goes on from what has been streamed."""
        prefix = len(sentence.target_prefix)
        if len(self._agreed) > prefix:
            counted = sentence.counted + len(self._agreed) - prefix
            sentence = replace(sentence, target_prefix=tuple(self._agreed), counted=counted)
        self.task, self.demand = sentence, demand(sentence, self._sizes)

    def _complete(self, translation: Translation) -> None:
        """Deliver the translation to all who wait for it."""
        if self._answers is not None:
            self._answers.put(self._key, translation)
        for repair in translation.repaired:
            self._observer.repaired(repair.kind, repair.by)
        for warning in translation.warnings:
            if warning in FAULT_KINDS:
                self._observer.repaired(warning, "none")
        self._observer.decoded(len(translation.hypotheses[0].token_scores))
        for ticket in self._end():
            ticket.translated(translation, self._started, self._encode_s, self._batch_size)

    def _end(self) -> list[TranslationTicket]:
        with self._lock:
            self._ended = True
            return self._tickets


class PartWork(_TranslationWork):
    """One of the sentences that a work was split into; it goes on as long as anyone waits for the
    whole, and fails the whole where it fails."""

    def __init__(
        self, whole: SentenceWork, number: int, sentence: Sentence, sizes: CacheCosts
    ) -> None:
        super().__init__(sentence, demand(sentence, sizes), time.monotonic(), whole.deadline)
        self._whole, self._number, self._sizes = whole, number, sizes

    def expire(self) -> bool:
        """Whether nobody waits for the whole."""
        return self._whole.expire()

    def tell(self, news: list[int]) -> None:
        """What is made of parts is not streamed."""

    def finish(self, outcome: SentenceOutcome) -> Sequence[_TranslationWork]:
        """Add the translation to the whole; a part is never split."""
        match outcome:
            case Done(translation):
                self._whole.take_part(self._number, translation)
                return ()
            case Again(sentence):
                self.task, self.demand = sentence, demand(sentence, self._sizes)
                return (self,)
            case Split():
                raise ValueError("a part of a sentence cannot be split again")

    def fail(self, error: Exception) -> None:
        """One part that fails is enough: the sentence that it is a part of fails."""
        self._whole.fail(error)
