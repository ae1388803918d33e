"""The scheduler of an encoder: reads texts in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.errors import DecodingError
from serving.queue.decoder import Scheduler
from serving.queue.engine import Engine, Joined, Progress, Work
from serving.queue.limits import BatchLimits, Demand
from serving.queue.observer import Observer
from serving.queue.ticket import HeldWork, Ticket
from serving.runtime.text_encoder import TextEncoder
from serving.search.options import Group

TEXT_GROUP = Group(beam_size=1, shortlisted=False)
"""The batch that all texts can join."""
ReadTicket = Ticket[Floats]
"""Ends with the output for one text: a vector, or class logits."""


class TextWork(Work[EncodedText, None, Floats]):
    """A text to read, with the ticket of the request that waits for it."""

    def __init__(self, text: EncodedText, ticket: ReadTicket) -> None:
        demand = Demand(TEXT_GROUP, source_length=len(text.ids), slots=0)
        super().__init__(text, demand, ticket.submitted, ticket.deadline)
        self._ticket = ticket

    def expire(self) -> bool:
        """Whether the request has ended; an overdue one fails now."""
        return self._ticket.expire()

    def tell(self, news: None) -> None:
        """Ignored: an encoder has no partial output."""

    def finish(self, outcome: Floats) -> Sequence[TextWork]:
        """Deliver the output."""
        self._ticket.complete(outcome)
        return ()

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self._ticket.fail(error)


class TextEngine:
    """The `Engine` of an encoder; it reads everything that has joined in one step, in the calling
    thread."""

    lost, company = False, 0

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.restart()

    def restart(self) -> None:
        """Drop all texts and start again."""
        self._texts: dict[int, EncodedText] = {}
        self.progress: Progress[None, Floats] = Progress()
        """The outputs that were not reported yet."""

    def join(self, tasks: Mapping[int, EncodedText]) -> None:
        """Add texts; the next step reads them."""
        self._texts.update(tasks)
        lengths = tuple(len(text.ids) for text in self._texts.values())
        self.progress.joined.append(Joined(tuple(tasks), time.monotonic(), 0.0, lengths))
        self.progress.rested.append(TEXT_GROUP)  # more may come before the next step

    def cancel(self, numbers: Iterable[int]) -> None:
        """Drop texts; those that were read are ignored."""
        for number in numbers:
            self._texts.pop(number, None)

    @property
    def busy(self) -> bool:
        """Whether there is anything to read or to report."""
        return bool(self._texts) or self.progress.matters

    def advance(self) -> None:
        """Read the texts that have joined."""
        if self._texts:
            found_BW = self._encoder.run(list(self._texts.values()))
            for number, found_W in zip(self._texts, found_BW, strict=True):
                if np.isfinite(found_W).all():
                    self.progress.outcomes.append((number, found_W))
                else:
                    error = DecodingError("the model gave a number that is not finite")
                    self.progress.failed.append((number, error))
        self._texts = {}

    def collect(self) -> Progress[None, Floats]:
        """Return the unreported outputs, and forget them."""
        progress, self.progress = self.progress, Progress()
        return progress

    def step(self) -> Progress[None, Floats]:
        """Read the texts that have joined; returns the outputs."""
        self.advance()
        return self.collect()

    def wake(self) -> None:
        """Does nothing: `step` computes and never waits."""

    def close(self) -> None:
        """Does nothing: an engine holds nothing between steps."""


class _NoCaches:
    """The caches of an encoder: none."""

    repack_every, spare_slots, most_states, reach = 1, 0, None, None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        del rows, source_length, slots
        return 0


class EncodingModel(Protocol):
    """A loaded encoder; `engine` creates an engine, which the caller closes."""

    def engine(self) -> Engine[EncodedText, None, Floats]: ...


class TextScheduler(Scheduler[EncodedText, None, Floats]):
    """Reads texts with one encoder."""

    def __init__(
        self,
        model: EncodingModel,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
        workers: int = 1,
        observer: Observer | None = None,
    ) -> None:
        """Start `workers` engines; `limits` apply to each."""
        super().__init__(
            [model.engine() for _ in range(workers)],
            _NoCaches(),
            limits or BatchLimits(),
            max_queue=max_queue,
            unit="texts",
            observer=observer or Observer(),
        )

    def submit_all(
        self,
        texts: Sequence[EncodedText],
        timeout_s: float | None = None,
        max_wait_s: float | None = None,
        held: list[HeldWork] | None = None,
    ) -> list[ReadTicket]:
        """Queue texts that arrive together, all or none; raises OverloadedError, also if others
        would delay the end beyond `max_wait_s`. With `held`, they are not queued but added to
        it."""
        tickets = [ReadTicket(timeout_s) for _ in texts]
        self._open.add(tickets)
        if held is not None:
            for text, ticket in zip(texts, tickets, strict=True):
                held.append(self._held(ticket, partial(self._put_one, text, ticket)))
            return tickets
        works = [TextWork(*each) for each in zip(texts, tickets, strict=True)]
        self._put(works, max_wait_s)
        return tickets

    def _put_one(self, text: EncodedText, ticket: ReadTicket) -> None:
        self._put([TextWork(text, ticket)])
