"""A submitted text and its events."""

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
    """A sentence to translate, with its client's options. It is passed on unchanged to the
    tokenizer."""

    text: str
    source: str | None = None
    """Language code of the text; some models of several directions need it."""
    target: str | None = None
    """Language code of the translation; models of several directions need it."""
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    given: bool = False
    """Whether `target_prefix` is the whole translation and only its scores are wanted; then the
    options are ignored."""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    draft: Draft | None = None
    """A similar sentence with its translation. This sentence begins as far as possible as that
    translation does. It excludes a prefix and `return_alternatives`; the translation is not
    streamed."""
    stream: bool = False
    """Whether the ticket streams certain text before the end."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None sets no deadline."""


@dataclass(frozen=True)
class PartialTranslation:
    """The certain beginning of the translation; each extends the one before."""

    text: str


@dataclass(frozen=True)
class Completed:
    """The last event of a ticket."""

    translation: Translation
    timing: RequestTiming


class TranslationTicket(Ticket[Completed]):
    """A submitted text: ends with its translation and may stream its beginning before."""

    _text = ""

    async def events(self) -> AsyncIterator[PartialTranslation | Completed]:
        """Yield the events of the request up to Completed; raises the ServingError that ends it.
        Leaving the loop early does not cancel the request; `cancel` does."""
        seen = ""
        async for done in self._changes():
            if self._text != seen:
                seen = self._text
                yield PartialTranslation(seen)
            if done:
                yield self.result()

    def tell(self, text: str) -> None:
        """Set the text that is certain by now."""
        self._text = text
        self._wake()
