"""A prompt on its way through the scheduler, and its demand on an engine."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

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
from serving.search.options import Group
from serving.search.prefix_tree import most_slots
from serving.search.sampling.prompts import CHUNK
from serving.search.stepper import CacheCosts


class PromptTask(NamedTuple):
    """A prompt as an engine sees it."""

    request: GenerationRequest
    ids: list[int]
    """Token ids of the prompt, at least one."""
    seed: int
    """Seed of the request, or a generated one; a repeated decoding gives the same output."""

    @property
    def rows(self) -> int:
        """Number of outputs drawn at the same time; a beam search counts as one."""
        options = self.request.options
        return 1 if options.beam_size > 1 else options.num_choices

    @property
    def group(self) -> Group:
        """The batch that the prompt can join: prompts with the same number of outputs share one."""
        return Group(self.request.options.beam_size, shortlisted=False)


class PromptWork(Work[PromptTask, PromptRead | Delta, GenerationDone]):
    """A prompt to continue, with the ticket that waits for it."""

    def __init__(
        self, task: PromptTask, ticket: GenerationTicket, demand: Demand, observer: Observer
    ) -> None:
        super().__init__(task, demand, ticket.submitted, ticket.deadline)
        self._ticket, self._observer = ticket, observer
        self._text_began = task.request.options.max_length == 0  # no text will come
        self._told: defaultdict[int | None, list[PromptRead | Delta]] = defaultdict(list)
        """The events so far, by choice; None stands for the prompt."""
        self._heard: Counter[int | None] = Counter()
        """Their number since the work last joined a batch."""

    def expire(self) -> bool:
        """Whether the request has ended. If it is overdue, it fails now."""
        return self._ticket.expire()

    def start(self, began: float, encode_s: float, batch_size: int) -> None:
        """Record the time of joining a batch; each attempt starts again."""
        self._heard.clear()

    def tell(self, news: PromptRead | Delta) -> None:
        """Deliver an event, unless an earlier attempt has delivered it. If that was another one,
        as it may be on a GPU, the stream breaks off, because the rest would not go with it."""
        choice = news.choice if isinstance(news, Delta) else None
        told, heard = self._told[choice], self._heard[choice]
        self._heard[choice] += 1
        if heard < len(told):
            if _output(told[heard]) != _output(news):
                self._ticket.break_off()
            return
        told.append(news)
        if not self._text_began and isinstance(news, Delta):
            self._text_began = True
            self._observer.first_token(time.monotonic() - self.submitted)
        self._ticket.tell(news)

    def finish(self, outcome: GenerationDone) -> Sequence[PromptWork]:
        """Deliver the outputs and count their tokens; returns no further works."""
        self._observer.decoded(outcome.num_generated_tokens)
        self._ticket.complete(outcome)
        return ()

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self._ticket.fail(error)


def _output(event: PromptRead | Delta) -> object:
    """What an event adds to an output. Scores are left out: their last bits may depend on the
    batch."""
    if isinstance(event, PromptRead):
        return None
    return event.text, [token.token_id for token in event.tokens], event.finish_reason


class PromptCosts(CacheCosts, Protocol):
    """The part of a language model's caches that a prompt takes."""

    @property
    def reach(self) -> int | None:
        """Number of positions that a query sees; None if it sees all."""
        ...


def prompt_demand(task: PromptTask, sizes: PromptCosts) -> Demand:
    """The demand of a prompt. All sampled outputs share one cache, which is as long as the longest
    output needs."""
    options, read, reach = task.request.options, len(task.ids), sizes.reach
    if options.beam_size == 1 and reach is not None:
        read = min(read, reach + CHUNK)  # the start of a longer prompt is dropped while it is read
    slots = most_slots(
        read, options.beam_size, options.max_length, sizes.repack_every, reach, sizes.spare_slots
    )
    return Demand(task.group, 0, slots, rows=task.rows)
