"""Bodies of the routes for glossaries in the native dialect."""

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
    """Language code of the translations."""
    entries: str | Annotated[list[GlossaryEntry], Field(min_length=1)]
    """A list, or one text with a term and its translation on each line. A term also matches its
    inflected forms; its translation is put in exactly as it is here."""
    format: Literal["tsv", "csv"] = "tsv"
    """The separator of a term and its translation on a line: a tab (`tsv`) or a comma (`csv`)."""


class NewGlossary(Wire):
    """A glossary to create."""

    name: str
    dictionaries: Annotated[list[GlossaryDictionary], Field(min_length=1)]
    """Dictionaries, one per language pair."""


class GlossaryPatch(Wire):
    """Changes to a glossary; omitted fields stay."""

    name: str | None = None
    dictionaries: list[GlossaryDictionary] | None = None
    """Entries to add. A term that is already there gets the new translation."""


class GlossaryPage(Wire):
    """Selects a page of glossaries."""

    after: str | None = None
    """Start after the glossary with this id."""
    limit: Annotated[Count, Field(ge=1, le=1000)] = 100
    """Largest number of glossaries on a page."""


class GlossaryPair(Wire):
    """Selects a dictionary of a glossary."""

    source: str
    target: str


class DictionaryInfo(Wire):
    """The record of a dictionary: the entries for one language pair."""

    source: str
    target: str
    entry_count: int


class GlossaryInfo(Wire):
    """A glossary's record."""

    id: str
    name: str
    created: float
    """Time in seconds since 1970, UTC."""
    dictionaries: list[DictionaryInfo]


class GlossaryList(Wire):
    """The glossaries of the caller's key, oldest first."""

    glossaries: list[GlossaryInfo]
    next: str | None = None
    """`after` of the next page; omitted on the last page."""


class GlossaryEntries(Wire):
    """The entries of a dictionary."""

    entries: list[GlossaryEntry]
