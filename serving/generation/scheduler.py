"""The scheduler of a language model: submits prompts to its engines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from serving.errors import RequestError, TooLongError
from serving.generation.prompts import PromptProcessor
from serving.generation.ticket import (
    Delta,
    GenerationDone,
    GenerationRequest,
    GenerationTicket,
    PromptRead,
)
from serving.generation.work import PromptCosts, PromptTask, PromptWork, prompt_demand
from serving.queue.decoder import Scheduler
from serving.queue.engine import Engine
from serving.queue.limits import BatchLimits, Demand
from serving.queue.observer import Observer
from serving.queue.ticket import HeldWork
from serving.runtime.session import DeviceUse


class GenerationModel(Protocol):
    """A loaded language model; `engine` creates an engine, which the caller closes."""

    @property
    def prompts(self) -> PromptProcessor: ...

    @property
    def sizes(self) -> PromptCosts: ...

    @property
    def device(self) -> DeviceUse: ...

    def engine(self) -> Engine[PromptTask, PromptRead | Delta, GenerationDone]: ...


class GenerationScheduler(Scheduler[PromptTask, PromptRead | Delta, GenerationDone]):
    """Continues prompts with one language model."""

    def __init__(
        self,
        model: GenerationModel,
        *,
        max_queue: int = 512,
        max_context_tokens: int | None = None,
        limits: BatchLimits | None = None,
        workers: int = 1,
        observer: Observer | None = None,
    ) -> None:
        """Start `workers` engines. Those on one device share the cache memory of `limits`; the
        other limits apply to each of them. Prompt and output together are bounded by
        `max_context_tokens` and by the model."""
        self._prompts, self._sizes = model.prompts, model.sizes
        self._max_context, limits = max_context_tokens, limits or BatchLimits()
        self._max_rows = limits.max_rows
        self._max_cache_bytes = limits.shared(workers, model.device.count).max_cache_bytes
        self._observer = observer or Observer()
        super().__init__(
            [model.engine() for _ in range(workers)],
            model.sizes,
            limits,
            devices=model.device.count,
            max_queue=max_queue,
            unit="prompts",
            observer=self._observer,
        )

    def submit(self, request: GenerationRequest) -> GenerationTicket:
        """Queue one request; raises RequestError or OverloadedError."""
        return self.submit_all([request])[0]

    def submit_all(
        self,
        requests: Sequence[GenerationRequest],
        max_wait_s: float | None = None,
        held: list[HeldWork] | None = None,
    ) -> list[GenerationTicket]:
        """Queue requests that arrive together, all or none. Raises what `submit` does, and
        OverloadedError also if others would delay the end beyond `max_wait_s`. With `held`, they
        are not queued but added to it."""
        prepared: list[tuple[PromptTask, GenerationTicket, Demand]] = []
        for index, request in enumerate(requests):
            try:
                task, demand = self._prepared(request)
            except RequestError as error:
                error.index = index if error.parameter == "prompt" else None
                raise
            prepared.append((task, GenerationTicket(request.timeout_s), demand))
        tickets = [ticket for _, ticket, _ in prepared]
        self._open.add(tickets)
        if held is None:
            self._put([PromptWork(*each, self._observer) for each in prepared], max_wait_s)
            return tickets
        for each in prepared:
            held.append(self._held(each[1], partial(self._put_one, *each)))
        return tickets

    def _prepared(self, request: GenerationRequest) -> tuple[PromptTask, Demand]:
        """The task of a request and its demand; raises RequestError."""
        ids, seed = self._prompts.encode(request.prompt), request.options.own_seed()
        task = PromptTask(request, ids, seed)
        self._prompts.check_options(request.options)
        demand = prompt_demand(task, self._sizes)
        self._check_size(task, demand)
        return task, demand

    def _put_one(self, task: PromptTask, ticket: GenerationTicket, demand: Demand) -> None:
        self._put([PromptWork(task, ticket, demand, self._observer)])

    def _check_size(self, task: PromptTask, demand: Demand) -> None:
        """Raise TooLongError for a prompt that no batch can hold."""
        self._prompts.check_length(task.ids, task.request.options, self._max_context)
        if task.rows > self._max_rows:
            raise TooLongError(
                f"a prompt must have at most {self._max_rows} outputs, got {task.rows}",
                parameter="num_hypotheses",
            )
        needed = self._sizes.cache_bytes(demand.rows, 0, demand.slots)
        if needed > self._max_cache_bytes:
            raise TooLongError(
                f"the prompt may need {needed / 2**20:.0f} MiB of cache, max_cache_bytes allows "
                f"{self._max_cache_bytes / 2**20:.0f} MiB; shorten it, or lower max_tokens",
                parameter="prompt",
            )
