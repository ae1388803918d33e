"""Requests of one model: queued, and decoded by one or several engines, whatever the task.

What the thread of each engine does stands in `serving.queue.decoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

from serving.queue.decoder import Decoder
from serving.queue.engine import Engine, News, Outcome, Task, Work
from serving.queue.limits import BatchLimits
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.queue.ticket import OpenTickets
from serving.search.stepper import CacheCosts


class Scheduler(Generic[Task, News, Outcome]):
    """Decodes works of one model; the subclass of each task makes them of requests."""

    def __init__(
        self,
        engines: Sequence[Engine[Task, News, Outcome]],
        sizes: CacheCosts,
        limits: BatchLimits,
        *,
        max_queue: int,
        unit: str,
        observer: Observer,
    ) -> None:
        """Start a thread for each engine, which it is to close at the end. They share the memory of
        `limits`; the other limits are each one's own. `unit` is what messages call a request, in
        the plural."""
        self.limits = limits
        """What a batch may hold; its memory is that of all engines together."""
        each = replace(limits, max_cache_bytes=limits.max_cache_bytes // len(engines))
        self._open = OpenTickets()
        self._queue: RequestQueue[Work[Task, News, Outcome]] = RequestQueue(max_queue, unit)
        self._decoders = [Decoder(engine, sizes, self._queue, each, observer) for engine in engines]
        for decoder in self._decoders:
            decoder.start([other for other in self._decoders if other is not decoder])

    @property
    def queue_depth(self) -> int:
        """How many works wait that no engine has taken yet."""
        return len(self._queue)

    @property
    def num_held(self) -> int:
        """Rows being decoded: 0 where nothing goes on."""
        return sum(decoder.num_rows for decoder in self._decoders)

    @property
    def answer_cache_bytes(self) -> int:
        """Bytes held by a cache of answers; 0 where the task has none."""
        return 0

    def abandon(self) -> None:
        """Fail whatever has not ended, with NotReadyError."""
        self._open.abandon()

    def retire(self) -> None:
        """Accept nothing more; what was accepted is finished, then the threads end."""
        self._queue.close()

    def close(self, timeout: float | None = None) -> None:
        """`retire`, and wait for the end."""
        self.retire()
        for decoder in self._decoders:
            decoder.join(timeout)

    def _put(
        self, works: Sequence[Work[Task, News, Outcome]], max_wait_s: float | None = None
    ) -> None:
        """Queue works, all or none; raises OverloadedError, also where they would not be begun in
        `max_wait_s`, or NotReadyError once retired."""
        self._queue.put(works, max_wait_s)
        # Have one that decodes take what has come; those that idle watch the queue themselves.
        if not any(decoder.idle for decoder in self._decoders):
            decoders = [decoder for decoder in self._decoders if decoder.open]
            if decoders:
                min(decoders, key=lambda decoder: decoder.num_rows + decoder.company).wake()
