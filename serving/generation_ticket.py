"""A prompt that has been submitted, and what happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from serving.errors import CancelledError
from serving.generation_options import GenerationOptions
from serving.generator import ChoiceBuilder, Generation, Prompt, TokenScore


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One prompt to go on from."""

    prompt: Prompt
    options: GenerationOptions = field(default_factory=GenerationOptions)
    score_prompt: bool = False
    """Whether the log-probabilities of the prompt's own tokens are wanted."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None is no deadline."""


@dataclass(frozen=True)
class PromptRead:
    """The first event of a ticket: the prompt has been read."""

    tokens: tuple[TokenScore, ...]
    """Empty where its log-probabilities were not asked for."""


@dataclass(frozen=True)
class Delta:
    """What has become certain of one output."""

    choice: int
    text: str
    tokens: tuple[TokenScore, ...]
    finish_reason: str
    """Empty while it goes on."""


@dataclass(frozen=True)
class GenerationDone:
    """The last event of a ticket."""

    choices: tuple[Generation, ...]
    prompt_tokens: tuple[TokenScore, ...]
    """Empty where they were not asked for."""
    num_prompt_tokens: int
    num_generated_tokens: int
    """Of all outputs, those that `best_of` drops included."""


Event = PromptRead | Delta | GenerationDone


class GenerationTicket:
    """A submitted request."""

    def __init__(self, request: GenerationRequest, prompt: list[int], deadline: float) -> None:
        self.request, self.prompt, self.deadline = request, prompt, deadline
        self.prompt_tokens: tuple[TokenScore, ...] = ()
        self.builders: dict[int, ChoiceBuilder] = {}
        """By key of the output's row."""
        self.num_generated = 0
        self._future: Future[GenerationDone] = Future()
        self._lock = threading.Lock()
        self._told: list[PromptRead | Delta] = []
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._future.add_done_callback(lambda _: self._wake())

    def result(self, timeout: float | None = None) -> GenerationDone:
        """Wait for the outputs; raises the ServingError that ended the request."""
        return self._future.result(timeout)

    async def wait(self) -> GenerationDone:
        """`result` for coroutines."""
        inner = asyncio.wrap_future(self._future)
        # Where nobody waits any more, an error is nobody's.
        inner.add_done_callback(lambda future: future.cancelled() or future.exception())
        return await asyncio.shield(inner)

    async def events(self) -> AsyncIterator[Event]:
        """What happens to the request, from its beginning, ending with GenerationDone; raises the
        ServingError that ends it. Leaving the loop early does not cancel, `cancel` does."""
        changed = asyncio.Event()
        with self._lock:
            self._listeners.append((asyncio.get_running_loop(), changed))
        seen = 0
        while True:
            changed.clear()
            done = self._future.done()  # asked first: no event follows
            with self._lock:
                new = self._told[seen:]
            for event in new:
                yield event
            seen += len(new)
            if done:
                yield self._future.result()
                return
            if not new:
                await changed.wait()

    def cancel(self) -> None:
        """Give the request up; its rows are freed before the next step."""
        self.fail(CancelledError("the request was cancelled"))

    @property
    def done(self) -> bool:
        """Whether the request has ended, in whatever way."""
        return self._future.done()

    def tell(self, event: PromptRead | Delta) -> None:
        """Add an event."""
        with self._lock:
            self._told.append(event)
        self._wake()

    def complete(self, done: GenerationDone) -> None:
        """Deliver the outputs, unless the request has ended already."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_result(done)

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended already."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_exception(error)

    def _wake(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for loop, changed in listeners:
            with contextlib.suppress(RuntimeError):  # its loop has been closed
                loop.call_soon_threadsafe(changed.set)
