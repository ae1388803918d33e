"""Requests of one model: queued, decoded by one or several threads, each with a running batch.

Knows nothing of HTTP. What each thread does stands in `serving.decoding`. Equal sentences in flight
are decoded once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from serving.batches import BatchLimits, demand
from serving.decoding import Decoder
from serving.errors import RequestError
from serving.request_queue import RequestQueue
from serving.search import Sentence
from serving.translator import Translation, Translator
from serving.work import Completed, Partial, Request, Timing, TranslationTicket, Work

__all__ = ["Completed", "Partial", "Request", "Scheduler", "Timing", "TranslationTicket"]


class Scheduler:
    """Decodes requests of one model."""

    def __init__(
        self,
        translator: Translator,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
        workers: int = 1,
    ) -> None:
        """Start `workers` threads, each of which has running batches; they share the memory of
        `limits`, the other limits are each one's own."""
        limits = limits or BatchLimits()
        each = replace(limits, max_cache_bytes=limits.max_cache_bytes // workers)
        self._translator = translator
        self._queue: RequestQueue[Work] = RequestQueue(max_queue, "sentences")
        self._submitting = threading.Lock()
        self._in_flight: WeakValueDictionary[object, Work] = WeakValueDictionary()
        self._decoders = [Decoder(translator, self._queue, each) for _ in range(workers)]
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

    def close(self, timeout: float | None = None) -> None:
        """Accept nothing more, finish what was accepted, end the threads."""
        self._queue.close()
        for decoder in self._decoders:
            decoder.join(timeout)

    def _enqueue(self, prepared: Sequence[tuple[Sentence, TranslationTicket]]) -> None:
        """Queue what is not in flight already."""
        new: dict[object, Work] = {}
        for sentence, ticket in prepared:
            key = sentence.key
            same = new.get(key) or self._in_flight.get(key)
            if same is None or not same.share(ticket):
                size = demand(sentence, self._translator.sizes)
                stream = self._translator.text_stream() if sentence.streamed else None
                new[key] = Work(sentence, ticket, size, stream)
        self._queue.put(list(new.values()))
        self._in_flight.update(new)
