"""Requests of one model: queued, and decoded by one or several engines.

Knows nothing of HTTP. What the thread of each engine does stands in `serving.translation.decoder`.
Equal sentences in flight are decoded once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from serving.errors import RequestError
from serving.queue.limits import BatchLimits, demand
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.queue.ticket import OpenTickets
from serving.search.sentence import Sentence
from serving.translation.answers import AnswerCache
from serving.translation.decoder import Decoder
from serving.translation.results import Translation
from serving.translation.texts import TextProcessor
from serving.translation.work import Completed, Partial, Request, Timing, TranslationTicket, Work

__all__ = ["Completed", "Partial", "Request", "Scheduler", "Timing", "TranslationTicket"]


class Scheduler:
    """Decodes requests of one model."""

    def __init__(
        self,
        translator: TextProcessor,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
        workers: int = 1,
        answer_cache_bytes: int = 0,
        observer: Observer | None = None,
    ) -> None:
        """Start `workers` engines; they share the memory of `limits`, the other limits are each
        one's own."""
        observer = observer or Observer()
        limits = limits or BatchLimits()
        each = replace(limits, max_cache_bytes=limits.max_cache_bytes // workers)
        self._translator, self._observer = translator, observer
        self._answers = AnswerCache(answer_cache_bytes)
        self._tickets = OpenTickets()
        self._queue: RequestQueue[Work] = RequestQueue(max_queue, "sentences")
        self._submitting = threading.Lock()
        self._in_flight: WeakValueDictionary[object, Work] = WeakValueDictionary()
        self._decoders = [
            Decoder(
                translator.engine(), translator.sizes, self._queue, each, self._answers, observer
            )
            for _ in range(workers)
        ]
        for decoder in self._decoders:
            decoder.start([other for other in self._decoders if other is not decoder])

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
                    request.text,
                    request.options,
                    request.target_prefix,
                    alignments=request.alignments,
                    terms=request.terms,
                    stream=request.stream,
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
                ticket.translated(Translation(""), ticket.submitted, 0.0, 0)
        return tickets

    def fits(self, text: str) -> bool:
        """Whether the model reads a sentence as long as this."""
        return self._translator.fits(text)

    @property
    def queue_depth(self) -> int:
        """Sentences that wait."""
        return len(self._queue)

    @property
    def num_held(self) -> int:
        """Sentences being decoded."""
        return sum(decoder.num_rows for decoder in self._decoders)

    @property
    def resident_bytes(self) -> int:
        """Memory of the processes that decode, where there are any beside this one."""
        return sum(decoder.resident_bytes for decoder in self._decoders)

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by the cache of answers."""
        return self._answers.num_bytes

    def abandon(self) -> None:
        """Fail whatever has not ended, with NotReadyError."""
        self._tickets.abandon()

    def retire(self) -> None:
        """Accept nothing more; what was accepted is finished, then the threads end."""
        self._queue.close()

    def close(self, timeout: float | None = None) -> None:
        """`retire`, and wait for the end."""
        self.retire()
        for decoder in self._decoders:
            decoder.join(timeout)

    def _enqueue(self, prepared: Sequence[tuple[Sentence, TranslationTicket]]) -> None:
        """Queue what is not in flight already."""
        new: dict[object, Work] = {}
        self._tickets.add(ticket for _, ticket in prepared)
        for sentence, ticket in prepared:
            if self._answered(sentence.key, ticket):
                continue
            same = new.get(sentence.key) or self._in_flight.get(sentence.key)
            if same is not None and same.share(ticket):
                self._observer.coalesced()
            else:
                size = demand(sentence, self._translator.sizes)
                stream = self._translator.text_stream() if sentence.streamed else None
                new[sentence.key] = Work(sentence, ticket, size, stream)
        self._queue.put(list(new.values()))
        self._in_flight.update(new)
        self._wake()

    def _wake(self) -> None:
        """Have one that decodes take what has come; those that idle watch the queue themselves."""
        if not any(decoder.idle for decoder in self._decoders):
            decoders = [decoder for decoder in self._decoders if decoder.open]
            if decoders:
                min(decoders, key=lambda decoder: decoder.num_rows).wake()

    def _answered(self, key: tuple[object, ...], ticket: TranslationTicket) -> bool:
        """Whether the cache has the answer, which the ticket then gets."""
        if not self._answers.enabled:
            return False
        found = self._answers.get(key)
        self._observer.looked_up(found=found is not None)
        if found is not None:
            ticket.translated(found, ticket.submitted, 0.0, 0)
        return found is not None
