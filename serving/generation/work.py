"""A prompt on its way through the scheduler, and what it takes of an engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from serving.generation.ticket import (
    Delta,
    GenerationDone,
    GenerationRequest,
    GenerationTicket,
    PromptRead,
)
from serving.queue.engine import Work
from serving.queue.limits import Demand
from serving.queue.observer import Observer
from serving.search.beams.sentence import Group
from serving.search.prefix_tree import most_slots
from serving.search.sampling.prompts import CHUNK
from serving.search.stepper import CacheCosts


class PromptTask(NamedTuple):
    """What an engine is to do with a prompt."""

    request: GenerationRequest
    ids: list[int]
    """Of the prompt, at least one."""
    seed: int
    """The request's or its own: what is decoded again comes out the same."""

    @property
    def rows(self) -> int:
        """Outputs drawn at once; a beam search counts as one."""
        options = self.request.options
        return 1 if options.beam_size > 1 else options.num_choices

    @property
    def group(self) -> Group:
        """The batch that the prompt may join: prompts of as many outputs share one."""
        return Group(self.request.options.beam_size, shortlisted=False)


class PromptWork(Work[PromptTask, PromptRead | Delta, GenerationDone]):
    """A prompt to go on from, with the ticket that waits for it."""

    def __init__(
        self, task: PromptTask, ticket: GenerationTicket, demand: Demand, observer: Observer
    ) -> None:
        super().__init__(task, demand, ticket.submitted, ticket.deadline)
        self._ticket, self._observer = ticket, observer
        self._text_began = task.request.options.max_length == 0  # there will be none
        self._told: Counter[int | None] = Counter()
        """Events by now, by their choice; None is for the prompt's."""
        self._heard: Counter[int | None] = Counter()
        """Likewise since it was taken into a batch for the last time."""

    def expire(self) -> bool:
        """Whether the request has ended, or is overdue and fails now."""
        return self._ticket.expire()

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Note when it was taken into a batch; of several times each begins anew."""
        self._heard.clear()

    def tell(self, news: PromptRead | Delta) -> None:
        """Add an event to those of the ticket, unless an earlier batch has told it."""
        choice = news.choice if isinstance(news, Delta) else None
        self._heard[choice] += 1
        if self._heard[choice] <= self._told[choice]:
            return
        self._told[choice] += 1
        if not self._text_began and isinstance(news, Delta):
            self._text_began = True
            self._observer.first_token(time.monotonic() - self.submitted)
        self._ticket.tell(news)

    def finish(self, outcome: GenerationDone) -> Sequence[PromptWork]:
        """Deliver the outputs and count their tokens; nothing more is to be decoded."""
        self._observer.decoded(outcome.num_generated_tokens)
        self._ticket.complete(outcome)
        return ()

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self._ticket.fail(error)


def prompt_demand(task: PromptTask, sizes: CacheCosts, reach: int | None) -> Demand:
    """What going on from a prompt may take: sampled outputs of all prompts share one cache, which
    is as long as the longest needs. A query sees `reach` positions; None is all."""
    options, read = task.request.options, len(task.ids)
    if options.beam_size == 1 and reach is not None:
        read = min(read, reach + CHUNK)  # longer prompts are dropped as they are read
    slots = most_slots(read, options.beam_size, options.max_length, sizes.repack_every, reach)
    return Demand(options.beam_size, 0, slots, rows=task.rows)
