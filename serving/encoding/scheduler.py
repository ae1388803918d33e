"""Texts of one encoder, on their way to engines that read them in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.errors import DecodingError
from serving.queue.decoder import Scheduler
from serving.queue.engine import Joined, Progress, Work
from serving.queue.limits import BatchLimits, Demand
from serving.queue.observer import Observer
from serving.queue.ticket import Ticket
from serving.runtime.text_encoder import TextEncoder

ReadTicket = Ticket[Floats]
"""Ends with what is read from one text: a vector, or the logits of classes."""


class TextWork(Work[EncodedText, None, Floats]):
    """A text to read, with the ticket that waits for it."""

    def __init__(self, text: EncodedText, ticket: ReadTicket) -> None:
        demand = Demand(beam_size=1, source_length=len(text.ids), slots=0)
        super().__init__(text, demand, ticket.submitted, ticket.deadline)
        self._ticket = ticket

    def expire(self) -> bool:
        """Whether the request has ended, or is overdue and fails now."""
        return self._ticket.expire()

    def tell(self, news: None) -> None:
        """Nothing is told before the end."""

    def finish(self, outcome: Floats) -> Sequence[TextWork]:
        """Deliver what was read."""
        self._ticket.complete(outcome)
        return ()

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self._ticket.fail(error)


class TextEngine:
    """The `Engine` of an encoder, which reads on the thread that calls it: all that has joined, in
    one step."""

    lost, company = False, 0

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.restart()

    def restart(self) -> None:
        """Drop all and begin anew."""
        self._texts: dict[int, EncodedText] = {}
        self._progress: Progress[None, Floats] = Progress()

    def join(self, tasks: Mapping[int, EncodedText]) -> None:
        """Take texts, which the next step reads."""
        self._texts.update(tasks)
        lengths = tuple(len(text.ids) for text in self._texts.values())
        self._progress.joined.append(Joined(tuple(tasks), time.monotonic(), 0.0, lengths))
        group = Demand(beam_size=1, source_length=0, slots=0).group
        self._progress.rested.append(group)  # more may come before the next step

    def cancel(self, numbers: Iterable[int]) -> None:
        """Drop texts, those that have been read already aside."""
        for number in numbers:
            self._texts.pop(number, None)

    def step(self) -> Progress[None, Floats]:
        """Read what has joined."""
        if self._texts:
            found_BW = self._encoder.run(list(self._texts.values()))
            for number, found_W in zip(self._texts, found_BW, strict=True):
                if np.isfinite(found_W).all():
                    self._progress.outcomes.append((number, found_W))
                else:
                    error = DecodingError("the model gave a number that is not finite")
                    self._progress.failed.append((number, error))
        progress = self._progress
        self.restart()
        return progress

    def wake(self) -> None:
        """Nothing to do: steps here compute, and never wait to be woken."""

    def close(self) -> None:
        """Nothing is held between steps."""


class _NoCaches:
    """What an encoder keeps of texts between steps: nothing."""

    repack_every, most_states, reach = 1, None, None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        del rows, source_length, slots
        return 0


class TextScheduler(Scheduler[EncodedText, None, Floats]):
    """Reads texts with one encoder."""

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        max_queue: int = 512,
        limits: BatchLimits | None = None,
        workers: int = 1,
        observer: Observer | None = None,
    ) -> None:
        """Start `workers` engines, which share the session; each has `limits` of its own."""
        super().__init__(
            [TextEngine(encoder) for _ in range(workers)],
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
    ) -> list[ReadTicket]:
        """Queue texts that arrive together, all or none; raises OverloadedError, also where they
        would wait longer than `max_wait_s`."""
        tickets = [ReadTicket(timeout_s) for _ in texts]
        self._open.add(tickets)
        works = [TextWork(*each) for each in zip(texts, tickets, strict=True)]
        self._put(works, max_wait_s)
        return tickets
