"""Texts of one translation model: made into sentences, of which equal ones in flight are decoded
once, and those decoded before not at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.queue.engine import Engine
from serving.queue.limits import BatchLimits, usual_limits
from serving.queue.observer import Observer
from serving.queue.scheduler import Scheduler
from serving.runtime.session import DeviceUse
from serving.search.options import SearchOptions
from serving.search.sentence import Sentence
from serving.translation.answers import AnswerCache
from serving.translation.results import SentenceOutcome, Translation
from serving.translation.texts import TextProcessor
from serving.translation.ticket import Request, TranslationTicket
from serving.translation.work import SentenceWork


class TranslationBundle(Protocol):
    """A translation bundle with engines that decode its sentences: `engine` gives one for each of
    the `workers`, for the caller to close. `warm_up` has something translated, since the first
    time takes longer."""

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
        """Start `workers` engines; they share the memory of `limits`, the other limits are each
        one's own."""
        self._texts, self._observer = model.texts, observer or Observer()
        self._answers = AnswerCache(answer_cache_bytes) if answer_cache_bytes else None
        self._submitting = threading.Lock()
        self._in_flight: WeakValueDictionary[object, SentenceWork] = WeakValueDictionary()
        super().__init__(
            [model.engine() for _ in range(workers)],
            self._texts.sizes,
            limits or usual_limits(model.device.name),
            max_queue=max_queue,
            unit="sentences",
            observer=self._observer,
        )

    def submit(self, request: Request) -> TranslationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(
        self, requests: Sequence[Request], max_wait_s: float | None = None
    ) -> list[TranslationTicket]:
        """Queue requests that arrive together, all or none.

        A RequestError says by its `index` which of them is at fault; an OverloadedError comes also
        where they would wait longer than `max_wait_s`.
        """
        prepared: list[tuple[Sentence | None, TranslationTicket]] = []
        for index, request in enumerate(requests):
            try:
                sentence = self._texts.prepare(request)
            except RequestError as error:
                error.index = index
                raise
            prepared.append((sentence, TranslationTicket(request.timeout_s)))
        tickets = [ticket for _, ticket in prepared]
        try:
            with self._submitting:
                self._enqueue([(s, t) for s, t in prepared if s is not None], max_wait_s)
        except BaseException:
            for ticket in tickets:  # of which some may have joined others already
                ticket.cancel()
            raise
        for sentence, ticket in prepared:
            if sentence is None:  # a blank text
                ticket.translated(Translation(""), ticket.submitted, 0.0, 0)
        return tickets

    def fits(self, text: str) -> bool:
        """Whether the model reads a sentence as long as this."""
        return self._texts.fits(text)

    def spells(self, text: str) -> bool:
        """Whether the model's vocabulary has a text without single bytes and unknown pieces."""
        return self._texts.spells(text)

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by the cache of answers; 0 where there is none."""
        return 0 if self._answers is None else self._answers.num_bytes

    def _enqueue(
        self, prepared: Sequence[tuple[Sentence, TranslationTicket]], max_wait_s: float | None
    ) -> None:
        """Queue what is not in flight already."""
        new: dict[object, SentenceWork] = {}
        self._open.add(ticket for _, ticket in prepared)
        for sentence, ticket in prepared:
            if self._answered(sentence.key, ticket):
                continue
            same = new.get(sentence.key) or self._in_flight.get(sentence.key)
            if same is not None and same.share(ticket):
                self._observer.coalesced()
            else:
                new[sentence.key] = SentenceWork(
                    sentence,
                    ticket,
                    self._texts.sizes,
                    stream=self._texts.text_stream() if sentence.streamed else None,
                    answers=self._answers,
                    observer=self._observer,
                )
        self._put(list(new.values()), max_wait_s)
        self._in_flight.update(new)

    def _answered(self, key: tuple[object, ...], ticket: TranslationTicket) -> bool:
        """Whether the cache has the answer, which the ticket then gets."""
        if self._answers is None:
            return False
        found = self._answers.get(key)
        self._observer.looked_up(found=found is not None)
        if found is not None:
            ticket.translated(found, ticket.submitted, 0.0, 0)
        return found is not None
