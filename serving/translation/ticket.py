"""A text that has been submitted, and what happens to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from serving.queue.ticket import RequestTiming, Ticket
from serving.search.options import SearchOptions
from serving.text.memory.segments import Draft
from serving.text.terms import NO_TERMS, Terms
from serving.translation.results import Translation


@dataclass(frozen=True, kw_only=True)
class Request:
    """One sentence to translate, and what its client asks of the translation. It goes whole from
    the client to what makes ids of it."""

    text: str
    source: str | None = None
    """The language of the text, which some models of several directions need."""
    target: str | None = None
    """The language of the translation, which a model of several directions needs."""
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    given: bool = False
    """Whether `target_prefix` is the whole translation, of which only the scores are wanted; the
    options count for nothing then."""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    draft: Draft | None = None
    """A sentence like this one with its translation, which gives this one's its beginning, as far
    as that is the translation of the same words. Neither with a prefix of the client's nor with
    `return_alternatives`; the translation is not streamed."""
    stream: bool = False
    """Whether its ticket streams what is certain before it ends."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None is no deadline."""


@dataclass(frozen=True)
class PartialTranslation:
    """The text with which the translation begins, whatever still comes; each begins with the one
    before."""

    text: str


@dataclass(frozen=True)
class Completed:
    """The last event of a ticket."""

    translation: Translation
    timing: RequestTiming


class TranslationTicket(Ticket[Completed]):
    """A text that was submitted: ends with its translation, and may stream its beginning
    before."""

    _told = ""

    async def events(self) -> AsyncIterator[PartialTranslation | Completed]:
        """What happens to the request, ending with Completed; raises the ServingError that ends it.
        Leaving the loop early does not cancel, `cancel` does."""
        seen = ""
        async for done in self._changes():
            if self._told != seen:
                seen = self._told
                yield PartialTranslation(seen)
            if done:
                yield self.result()

    def tell(self, text: str) -> None:
        """What is certain by now."""
        self._told = text
        self._wake()
