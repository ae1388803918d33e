"""A submitted prompt and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from serving.errors import DecoderLostError
from serving.generation.choices import Generation, Prompt, TokenScore
from serving.queue.ticket import Ticket
from serving.search.sampling_options import GenerationOptions


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """A prompt to continue."""

    prompt: Prompt
    options: GenerationOptions = field(default_factory=GenerationOptions)
    score_prompt: bool = False
    """Whether the log-probabilities of the prompt's own tokens are wanted."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None sets no deadline."""


@dataclass(frozen=True)
class PromptRead:
    """The first event of a ticket: the prompt has been read."""

    tokens: tuple[TokenScore, ...]
    """Scores of the prompt's tokens; empty if they were not requested."""


@dataclass(frozen=True)
class Delta:
    """New certain output of one choice."""

    choice: int
    text: str
    tokens: tuple[TokenScore, ...]
    finish_reason: str
    """The reason why the output ended; empty while it continues."""


@dataclass(frozen=True)
class GenerationDone:
    """The last event of a ticket."""

    choices: tuple[Generation, ...]
    prompt_tokens: tuple[TokenScore, ...]
    """Scores of the prompt's tokens; empty if they were not requested."""
    num_prompt_tokens: int
    num_generated_tokens: int
    """Number of tokens of all outputs, including those that `best_of` drops."""


Event = PromptRead | Delta | GenerationDone


class GenerationTicket(Ticket[GenerationDone]):
    """A submitted request whose events can be followed."""

    def __init__(self, timeout_s: float | None = None) -> None:
        super().__init__(timeout_s)
        self._told: list[PromptRead | Delta] = []
        self._broken = False

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the request from its start to GenerationDone; raises the ServingError
        that ends it, and DecoderLostError after `break_off`. Leaving the loop early does not cancel
        the request; `cancel` does."""
        seen = 0
        async for done in self._changes():
            with self._lock:
                new, broken = self._told[seen:], self._broken
            if broken:
                raise DecoderLostError(
                    "the text was decoded again and does not go on from what was sent; try again"
                )
            for event in new:
                yield event
            seen += len(new)
            if done:
                yield self.result()

    def break_off(self) -> None:
        """End the listeners' events with an error, because what they were told no longer holds. The
        outcome is delivered to those who wait for it alone."""
        with self._lock:
            self._broken = True
        self._wake()

    def tell(self, event: PromptRead | Delta) -> None:
        """Append an event for the listeners."""
        with self._lock:
            self._told.append(event)
        self._wake()
