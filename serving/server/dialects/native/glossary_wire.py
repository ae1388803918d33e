"""What goes over the wire for glossaries in the native dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.dialects.native.wire import GlossaryEntry
from serving.server.http.wire import Count, Wire


class GlossaryDictionary(Wire):
    """Entries for a language pair."""

    source: str
    """Language code of the terms."""
    target: str
    """Language code of their translations."""
    entries: str | Annotated[list[GlossaryEntry], Field(min_length=1)]
    """A list, or lines of a term and its translation. A term also counts for its inflected forms,
    its translation is put in as it stands here."""
    format: Literal["tsv", "csv"] = "tsv"
    """Of lines: what stands between a term and its translation."""


class NewGlossary(Wire):
    """A glossary to make."""

    name: str
    dictionaries: Annotated[list[GlossaryDictionary], Field(min_length=1)]
    """One for each language pair."""


class GlossaryPatch(Wire):
    """What changes of a glossary; what is left out stays."""

    name: str | None = None
    dictionaries: list[GlossaryDictionary] | None = None
    """Entries to add to those that are there; a term that is there gets the new translation."""


class GlossaryPage(Wire):
    """Which glossaries are asked for."""

    after: str | None = None
    """The id of a glossary; those behind it follow."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """How many at most."""


class GlossaryPair(Wire):
    """Which dictionary of a glossary is meant."""

    source: str
    target: str


class DictionaryInfo(Wire):
    """What is known of the entries for a language pair."""

    source: str
    target: str
    entry_count: int


class GlossaryInfo(Wire):
    """What is known of a glossary."""

    id: str
    name: str
    created: float
    """Seconds since 1970, in UTC."""
    dictionaries: list[DictionaryInfo]


class GlossaryList(Wire):
    """Glossaries of the key, the oldest first."""

    glossaries: list[GlossaryInfo]
    next: str | None = None
    """What `after` must say for those that follow; left out where none do."""


class GlossaryEntries(Wire):
    """The entries of a dictionary."""

    entries: list[GlossaryEntry]
