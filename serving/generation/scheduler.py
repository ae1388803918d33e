"""One running batch of a language model: prompts join and leave it between steps.

Knows nothing of HTTP. Sampled and greedy outputs of all requests are decoded in one batch. A
finished, cancelled or overdue output gives its row back before the next step. Beam
searches have batches of their own, which take turns with it; so do prompts, which are read a chunk
between two steps.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from serving.errors import ContextLengthError, TooLongError
from serving.generation.choices import ChoiceBuilder, Generation, best_choices
from serving.generation.generator import Generator
from serving.generation.ticket import (
    Delta,
    GenerationDone,
    GenerationRequest,
    GenerationTicket,
    PromptRead,
)
from serving.queue.limits import BatchLimits
from serving.queue.observer import Observer
from serving.queue.request_queue import RequestQueue
from serving.queue.ticket import OpenTickets
from serving.runtime.language_stepper import LanguageStepper
from serving.search.beam import BeamSearch
from serving.search.prefix_tree import most_slots
from serving.search.prompts import CHUNK, Prompted, PromptScores, chunks
from serving.search.sampled_batch import Generated, GenerationBatch, SampledOutput
from serving.search.sampling_options import GenerationOptions

_READ_TOGETHER = 8


class _Reading:
    """Prompts of one number of chunks that are being read."""

    def __init__(
        self, tickets: list[GenerationTicket], stepper: LanguageStepper, *, score: bool
    ) -> None:
        self.tickets = tickets
        self.rows = {
            prompt: row
            for row, prompt in enumerate(dict.fromkeys(tuple(t.prompt) for t in tickets))
        }
        """Of each prompt, which several tickets may share."""
        labels = [prompt[1:] for prompt in self.rows] if score else None
        self.steps = stepper.read([prompt[:-1] for prompt in self.rows], labels)


class GenerationScheduler:
    """Continues prompts with one language model on a thread of its own."""

    def __init__(
        self,
        generator: Generator,
        *,
        max_queue: int = 512,
        max_context_tokens: int | None = None,
        limits: BatchLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`max_context_tokens` bounds prompt and output together."""
        self._generator, self._observer = generator, observer or Observer()
        self._tickets = OpenTickets()
        self._max_context, self._limits = max_context_tokens, limits or BatchLimits()
        self._queue: RequestQueue[GenerationTicket] = RequestQueue(max_queue, "prompts")
        self._running: dict[int, GenerationTicket] = {}
        """By key of the output's row."""
        self._keys = itertools.count()
        self._batch = GenerationBatch(generator.stepper)
        self._searches: dict[GenerationTicket, BeamSearch] = {}
        self._readings: deque[_Reading] = deque()
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest) -> GenerationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[GenerationRequest]) -> list[GenerationTicket]:
        """Queue requests that arrive together, all or none; raises what `submit` does."""
        tickets = []
        for request in requests:
            prompt = self._generator.encode(request.prompt)
            self._generator.check_options(request.options)
            self._check_size(prompt, request.options)
            tickets.append(GenerationTicket(request, prompt))
        self._tickets.add(tickets)
        self._queue.put(tickets)
        return tickets

    @property
    def queue_depth(self) -> int:
        """Prompts that wait."""
        return len(self._queue)

    @property
    def num_rows(self) -> int:
        """Outputs being continued, beams not counted."""
        return len(self._running)

    @property
    def num_held(self) -> int:
        """Outputs, beam searches and prompts being read: 0 where nothing goes on."""
        reading = sum(len(reading.tickets) for reading in list(self._readings))
        return len(self._running) + len(self._searches) + reading

    @property
    def _busy(self) -> bool:
        return bool(self._running or self._searches or self._readings)

    @property
    def resident_bytes(self) -> int:
        """It decodes in this process."""
        return 0

    @property
    def answer_cache_bytes(self) -> int:
        """There is no cache of answers: most outputs are drawn by chance."""
        return 0

    def abandon(self) -> None:
        """Fail whatever has not ended, with NotReadyError."""
        self._tickets.abandon()

    def retire(self) -> None:
        """Accept nothing more; what was accepted is finished, then the thread ends."""
        self._queue.close()

    def close(self, timeout: float | None = None) -> None:
        """`retire`, and wait for the end."""
        self.retire()
        self._thread.join(timeout)

    def _check_size(self, prompt: list[int], options: GenerationOptions) -> None:
        """Raise TooLongError for what could never be decoded here."""
        length, limit = len(prompt) + options.max_length, self._max_context
        if limit is not None and length > limit:
            raise ContextLengthError(
                f"prompt and output must have at most {limit} tokens together, got "
                f"{len(prompt)} + {options.max_length}; shorten the prompt or lower max_tokens"
            )
        if _rows(options) > self._limits.max_rows:
            raise TooLongError(
                f"a prompt must have at most {self._limits.max_rows} outputs, got {_rows(options)}"
            )
        needed = self._cache_bytes([(prompt, options)])
        if needed > self._limits.max_cache_bytes:
            raise TooLongError(
                f"the prompt may need {needed / 2**20:.0f} MiB of cache, max_cache_bytes allows "
                f"{self._limits.max_cache_bytes / 2**20:.0f} MiB; shorten it, or lower max_tokens"
            )

    def _cache_bytes(self, rows: Sequence[tuple[list[int], GenerationOptions]]) -> int:
        """Memory that the caches of these may take beside each other.

        Sampled outputs share one cache, which is as long as the longest of them needs.
        """
        stepper = self._generator.stepper
        total, count, longest = 0, 0, 0
        for prompt, options in rows:
            read, steps, reach = len(prompt), options.max_length, stepper.reach
            every, beams = stepper.repack_every, options.beam_size
            if beams > 1:
                slots = most_slots(read, beams, steps, every, reach)
                total += stepper.cache_bytes(1, 0, slots)
                continue
            if reach is not None:  # longer prompts are dropped as they are read
                read = min(read, reach + CHUNK)
            count += options.num_choices
            longest = max(longest, most_slots(read, 1, steps, every, reach))
        return total + stepper.cache_bytes(count, 0, longest)

    def _run(self) -> None:
        while self._busy or self._queue.wait():
            self._begin(self._take())
            self._queue.drop_ended()
            if self._readings:
                self._read()
            self._step()
            for ticket in list(self._searches):
                self._guarded(ticket, partial(self._search, ticket))
        self._batch.close()

    def _take(self) -> list[GenerationTicket]:
        """Remove from the queue what fits beside what is running, oldest first."""
        read = [ticket for reading in self._readings for ticket in reading.tickets]
        tickets = {*self._running.values(), *self._searches, *read}
        running = [(ticket.prompt, ticket.request.options) for ticket in tickets]

        def choose(ticket: GenerationTicket) -> bool | None:
            nonlocal running
            beside = [*running, (ticket.prompt, ticket.request.options)]
            fits = (
                sum(_rows(options) for _, options in beside) <= self._limits.max_rows
                and self._cache_bytes(beside) <= self._limits.max_cache_bytes
            )
            if running and not fits:
                return None  # none is overtaken
            running = beside
            return True

        return self._queue.take(choose)

    def _begin(self, tickets: Sequence[GenerationTicket]) -> None:
        """Read the prompts of tickets, those of one number of chunks together."""
        if tickets:
            now = time.monotonic()
            held = {*self._running.values(), *self._searches, *tickets}
            lengths = [len(t.prompt) for t in held for _ in range(_rows(t.request.options))]
            self._observer.joined([now - ticket.submitted for ticket in tickets], lengths)
        groups: dict[tuple[int, bool], list[GenerationTicket]] = {}
        for ticket in tickets:
            request = ticket.request
            samples = request.options.max_length > 0 and request.options.beam_size == 1
            if samples or request.score_prompt:
                key = (chunks(ticket.prompt[:-1]), request.score_prompt)
                groups.setdefault(key, []).append(ticket)
            else:
                self._guarded(ticket, partial(self._join, ticket))
        for (_, score), group in groups.items():
            for start in range(0, len(group), _READ_TOGETHER):
                part = group[start : start + _READ_TOGETHER]
                self._readings.append(_Reading(part, self._generator.stepper, score=score))

    def _read(self) -> None:
        """One chunk of the prompts that have waited longest; at their end they join."""
        reading = self._readings[0]
        reading.tickets = [ticket for ticket in reading.tickets if not ticket.expire()]
        try:
            if reading.tickets:
                next(reading.steps)
                return
        except StopIteration as end:
            prompted, scores = end.value
            self._finish_reading(reading, prompted, scores)
        except Exception as error:  # the thread must outlive any failure of a batch
            for ticket in reading.tickets:
                ticket.fail(error)
        self._readings.popleft()

    def _finish_reading(
        self, reading: _Reading, prompted: Prompted, scores: PromptScores | None
    ) -> None:
        """Let the outputs of prompts that have been read join the batch."""
        sharers: list[list[SampledOutput]] = [[] for _ in reading.rows]
        for ticket in reading.tickets:
            row = reading.rows[tuple(ticket.prompt)]
            own = None if scores is None else scores.of(row)
            self._guarded(ticket, partial(self._join, ticket, own, sharers[row]))
        if any(sharers):
            self._batch.join(sharers, prompted)
        else:
            self._generator.stepper.free(prompted.state)

    def _join(
        self,
        ticket: GenerationTicket,
        scores: PromptScores | None = None,
        outputs: list[SampledOutput] | None = None,
    ) -> None:
        """Tell that the prompt has been read, and add the ticket's sampled outputs to `outputs`."""
        request, generator = ticket.request, self._generator
        options = request.options
        if scores is not None:
            found = generator.prompt_scores(
                request.prompt, ticket.prompt, scores, options.num_logprobs
            )
            ticket.prompt_tokens = tuple(found)
        ticket.tell(PromptRead(ticket.prompt_tokens))
        if options.max_length == 0:
            self._deliver_whole(ticket, (Generation("", (), "length"),) * options.num_hypotheses)
        elif options.beam_size > 1:
            self._searches[ticket] = generator.start_search(ticket.prompt, options)
        else:
            assert outputs is not None
            first = next(self._keys)
            own = generator.outputs(first, ticket.prompt, options)
            for _ in own[1:]:
                next(self._keys)
            outputs += own
            for output in own:
                builder = ChoiceBuilder(generator.tokenizer, ticket.prompt, options)
                ticket.builders[output.key] = builder
                self._running[output.key] = ticket

    def _step(self) -> None:
        """One token of every output."""
        for key, ticket in list(self._running.items()):
            if ticket.expire():
                self._leave(key)
        try:
            events = self._batch.step()
        except Exception as error:  # the thread must outlive any failure of a batch
            for ticket in set(self._running.values()):
                ticket.fail(error)
            self._running.clear()
            self._batch.close()
            return
        for event in events:
            if event.key not in self._running:  # another output of its prompt has failed
                continue
            ticket = self._running[event.key]
            self._guarded(ticket, partial(self._note, ticket, event))

    def _search(self, ticket: GenerationTicket) -> None:
        """One step of a beam search."""
        search = self._searches[ticket]
        if ticket.expire():
            self._end_search(ticket)
            return
        for finished in search.step():
            found = self._generator.complete_search(ticket.prompt, finished)
            ticket.num_generated = sum(len(choice.tokens) for choice in found)
            del self._searches[ticket]
            self._deliver_whole(ticket, tuple(found))

    def _end_search(self, ticket: GenerationTicket) -> None:
        """Give a beam search up."""
        self._searches.pop(ticket).cancel(0)

    def _note(self, ticket: GenerationTicket, event: Generated) -> None:
        """Add a token to an output, and end what is complete."""
        if event.error is not None:
            raise event.error
        builder = ticket.builders[event.key]
        text, tokens = builder.push(event)
        if not ticket.num_generated:
            self._observer.first_token(time.monotonic() - ticket.submitted)
        ticket.num_generated += 1
        number = event.key - min(ticket.builders)
        ticket.tell(Delta(number, text, tokens, builder.finish_reason))
        if builder.finish_reason:
            self._leave(event.key)
            if all(other.finish_reason for other in ticket.builders.values()):
                found = [other.finished() for other in ticket.builders.values()]
                self._deliver(ticket, tuple(best_choices(found, ticket.request.options)))

    def _deliver_whole(self, ticket: GenerationTicket, choices: tuple[Generation, ...]) -> None:
        """Deliver outputs of which nothing has been told yet."""
        for number, choice in enumerate(choices):
            ticket.tell(Delta(number, choice.text, choice.tokens, choice.finish_reason))
        self._deliver(ticket, choices)

    def _deliver(self, ticket: GenerationTicket, choices: tuple[Generation, ...]) -> None:
        self._observer.decoded(ticket.num_generated)
        ticket.complete(
            GenerationDone(choices, ticket.prompt_tokens, len(ticket.prompt), ticket.num_generated)
        )

    def _leave(self, key: int) -> None:
        self._batch.remove(key)
        del self._running[key]

    def _guarded(self, ticket: GenerationTicket, act: Callable[[], None]) -> None:
        """Do something for one ticket; what fails, fails for it alone."""
        try:
            act()
        except Exception as error:
            ticket.fail(error)
            if ticket in self._searches:
                self._end_search(ticket)
            for key in ticket.builders:
                if key in self._running:
                    self._leave(key)


def _rows(options: GenerationOptions) -> int:
    """Rows of the running batch; a beam search counts as one."""
    return 1 if options.beam_size > 1 else options.num_choices
