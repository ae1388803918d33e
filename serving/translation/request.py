"""What is asked of a translation, whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.search.options import SearchOptions
from serving.text.terms import NO_TERMS, Terms


@dataclass(frozen=True, kw_only=True)
class Request:
    """One sentence to translate, and what its client asks of the translation. It goes whole from
    the client to what makes ids of it."""

    text: str
    source: str | None = None
    """The language of the text, which some models of several directions have to be told."""
    target: str | None = None
    """The language of the translation, which a model of several directions has to be told."""
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: str = ""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    stream: bool = False
    """Whether its ticket tells of what is certain before it ends."""
    timeout_s: float | None = None
    """Seconds from submission to the deadline; None is no deadline."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is rarely asked of the translation of texts in Python."""

    target_prefix: str | Sequence[str] = ""
    """What translations begin with: one text for all, or one a text; of several sentences the
    first gets it."""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    """Terms that every sentence's translation must or may not hold."""


NO_WISHES = Wishes()
