"""The scheduler of a translation model. Equal sentences in flight are decoded once; cached ones are
not decoded again."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from serving.bundle.manifest import Manifest
from serving.checking.invariants import FAULT_KINDS
from serving.errors import RequestError
from serving.queue.decoder import Scheduler
from serving.queue.engine import Engine, Work
from serving.queue.limits import BatchLimits, Demand, usual_limits
from serving.queue.observer import Observer
from serving.queue.ticket import HeldWork
from serving.runtime.session import DeviceUse
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.search.stepper import CacheCosts
from serving.text.stream import TextStream
from serving.translation.answers import AnswerCache
from serving.translation.results import Again, Done, SentenceOutcome, Split, Translation, gathered
from serving.translation.texts import TextProcessor, demand
from serving.translation.ticket import Completed, Request, TranslationTicket


class TranslationBundle(Protocol):
    """A loaded translation model: `engine` creates an engine for one of the `workers`, which the
    caller closes. `warm_up` translates something, because the first call takes longer."""

    @property
    def texts(self) -> TextProcessor: ...

    @property
    def workers(self) -> int: ...

    @property
    def device(self) -> DeviceUse: ...

    @property
    def manifest(self) -> Manifest: ...

    @property
    def default_options(self) -> SearchOptions: ...

    def engine(self) -> Engine[Sentence, list[int], SentenceOutcome]: ...

    def warm_up(self) -> None: ...


class TranslationScheduler(Scheduler[Sentence, list[int], SentenceOutcome]):
    """Translates requests with one model."""

    def __init__(
        self,
        model: TranslationBundle,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
        workers: int = 1,
        answer_cache_bytes: int = 0,
        observer: Observer | None = None,
    ) -> None:
        """Start `workers` engines. Those on one device share the cache memory of `limits`; the
        other limits apply to each of them."""
        self.texts, self._observer = model.texts, observer or Observer()
        self._answers = AnswerCache(answer_cache_bytes) if answer_cache_bytes else None
        self._submitting = threading.Lock()
        self._in_flight: WeakValueDictionary[object, SentenceWork] = WeakValueDictionary()
        super().__init__(
            [model.engine() for _ in range(workers)],
            self.texts.sizes,
            limits or usual_limits(model.device.name),
            devices=model.device.count,
            max_queue=max_queue,
            unit="sentences",
            observer=self._observer,
        )

    def submit(self, request: Request) -> TranslationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(
        self,
        requests: Sequence[Request],
        max_wait_s: float | None = None,
        held: list[HeldWork] | None = None,
    ) -> list[TranslationTicket]:
        """Queue requests that arrive together, all or none. With `held`, they are not queued but
        added to it.

        `index` of a RequestError is the index of the request at fault. OverloadedError is also
        raised if others would delay the end beyond `max_wait_s`.
        """
        tickets: list[TranslationTicket] = []
        prepared: list[_Prepared] = []
        for index, request in enumerate(requests):
            ticket = TranslationTicket(request.timeout_s)
            try:
                sentence = self.texts.prepare(request)
                asked = sentence and self.texts.demand(sentence)
            except RequestError as error:
                error.index = index
                raise
            tickets.append(ticket)
            if sentence and asked:
                prepared.append(_Prepared(sentence.key, sentence, asked, ticket))
            else:  # blank text
                ticket.complete(Completed(Translation(""), ticket.timing(ticket.submitted, 0.0, 0)))
        if held is not None:
            self._open.add(tickets)
            for each in prepared:
                held.append(self._held(each.ticket, partial(self._enqueue, [each], max_wait_s)))
            return tickets
        try:
            self._enqueue(prepared, max_wait_s)
        except BaseException:
            for ticket in tickets:  # some may already have joined equal requests
                ticket.cancel()
            raise
        return tickets

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by the cache of answers; 0 if there is none."""
        return 0 if self._answers is None else self._answers.num_bytes

    def _enqueue(self, prepared: Sequence[_Prepared], max_wait_s: float | None = None) -> None:
        """Queue the sentences that are not in flight already."""
        new: dict[object, SentenceWork] = {}
        with self._submitting:
            for each in prepared:
                if self._answered(each.key, each.ticket):
                    continue
                same = new.get(each.key) or self._in_flight.get(each.key)
                if same is not None and same.share(each.ticket):
                    self._observer.coalesced()
                else:
                    new[each.key] = SentenceWork(
                        each,
                        self.texts.sizes,
                        stream=self.texts.text_stream() if each.sentence.streamed else None,
                        answers=self._answers,
                        observer=self._observer,
                    )
            self._open.add([each.ticket for each in prepared])
            self._put(list(new.values()), max_wait_s)
            self._in_flight.update(new)

    def _answered(self, key: tuple[object, ...], ticket: TranslationTicket) -> bool:
        """Whether the cache has the answer; if so, it is delivered to the ticket."""
        if self._answers is None:
            return False
        found = self._answers.get(key)
        self._observer.looked_up(found=found is not None)
        if found is not None:
            ticket.complete(Completed(found, ticket.timing(ticket.submitted, 0.0, 0)))
        return found is not None


class _Prepared(NamedTuple):
    """A sentence that is ready to be queued."""

    key: tuple[object, ...]
    """Sentences with equal keys have equal results. This is the original sentence's, before the
    loop guard changes its options."""
    sentence: Sentence
    asked: Demand
    ticket: TranslationTicket


_TranslationWork = Work[Sentence, list[int], SentenceOutcome]


class SentenceWork(_TranslationWork):
    """A sentence to decode, with all tickets that wait for it."""

    def __init__(
        self,
        prepared: _Prepared,
        sizes: CacheCosts,
        *,
        stream: TextStream | None,
        answers: AnswerCache | None,
        observer: Observer,
    ) -> None:
        """`stream` turns news into text; `answers` is the cache that stores the translation, if
        there is one."""
        self._key, sentence, asked, ticket = prepared
        super().__init__(sentence, asked, ticket.submitted, ticket.deadline)
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
        """Let another ticket wait for the same result; returns False if it is too late."""
        with self._lock:
            if not self._ended:
                self._tickets.append(ticket)
                ticket.tell(self._text)
            return not self._ended

    def expire(self) -> bool:
        """Whether nobody waits for it any more. Overdue tickets fail now."""
        with self._lock:
            waiting = [ticket for ticket in self._tickets if not ticket.expire()]
            self._ended = self._ended or not waiting
            return self._ended

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Record the first time of joining a batch, and the total time in the encoder."""
        self._started = self._started or began
        self._encode_s += encode_s
        self._batch_size = batch_size

    def tell(self, news: list[int]) -> None:
        """Stream the certain beginning, prefix included."""
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
        """Deliver the translation, or return the works that the outcome asks for. Streamed text
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
        """Fail the sentence for all waiting tickets."""
        for ticket in self._end():
            ticket.fail(error)

    def take_part(self, number: int, translation: Translation) -> None:
        """Add the translation of a part; the last part completes the sentence."""
        with self._lock:
            self._parts[number] = translation
            parts = [part for part in self._parts if part is not None]
        if len(parts) == len(self._parts):
            self._complete(gathered(parts))

    def _replace(self, sentence: Sentence) -> None:
        """A new sentence to decode instead; streaming continues where it was."""
        prefix = len(sentence.target_prefix)
        if len(self._agreed) > prefix:
            counted = sentence.counted + len(self._agreed) - prefix
            sentence = replace(sentence, target_prefix=tuple(self._agreed), counted=counted)
        self.task, self.demand = sentence, demand(sentence, self._sizes)

    def _complete(self, translation: Translation) -> None:
        """Deliver the translation to all waiting tickets."""
        if self._answers is not None:
            self._answers.put(self._key, translation)
        tickets = self._end()
        for repair in translation.repaired:
            self._observer.repaired(repair.kind, repair.by)
        for warning in translation.warnings:
            if warning in FAULT_KINDS:
                self._observer.repaired(warning, "none")
        self._observer.decoded(len(translation.hypotheses[0].token_scores))
        for ticket in tickets:
            timing = ticket.timing(self._started, self._encode_s, self._batch_size)
            ticket.complete(Completed(translation, timing))

    def _end(self) -> list[TranslationTicket]:
        with self._lock:
            self._ended = True
            return self._tickets


class PartWork(_TranslationWork):
    """A part of a split sentence. It lives as long as anyone waits for the whole, and fails the
    whole if it fails."""

    def __init__(
        self, whole: SentenceWork, number: int, sentence: Sentence, sizes: CacheCosts
    ) -> None:
        super().__init__(sentence, demand(sentence, sizes), time.monotonic(), whole.deadline)
        self._whole, self._number, self._sizes = whole, number, sizes

    def expire(self) -> bool:
        """Whether nobody waits for the whole."""
        return self._whole.expire()

    def tell(self, news: list[int]) -> None:
        """Ignored: split sentences are not streamed."""

    def finish(self, outcome: SentenceOutcome) -> Sequence[_TranslationWork]:
        """Add the translation to the whole; a part is never split again."""
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
        """Fail the whole sentence."""
        self._whole.fail(error)
