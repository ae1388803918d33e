"""Bodies of both versions of DeepL's glossary API; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

EntriesFormat = Literal["tsv", "csv"]


class DeepLNewDictionary(Wire):
    """Entries for a language pair."""

    source_lang: str
    """Language code of the terms, in upper or lower case. A region is ignored if no model knows
    it."""
    target_lang: str
    """Language code of the translations, in the same form."""
    entries: str
    """One entry per line: a term, the separator and its translation."""
    entries_format: EntriesFormat
    """The separator: a tab (`tsv`) or a comma (`csv`)."""


class DeepLNewGlossary(DeepLNewDictionary):
    """A glossary to create, with entries for one language pair."""

    name: str


class DeepLGlossary(Wire):
    """The record of a glossary with one dictionary."""

    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    """Time in UTC, ISO 8601."""
    entry_count: int


class DeepLGlossaries(Wire):
    """The glossaries with one dictionary, oldest first."""

    glossaries: list[DeepLGlossary]


class DeepLGlossaryPair(Wire):
    """A language pair that glossaries support."""

    source_lang: str
    target_lang: str


class DeepLGlossaryPairs(Wire):
    """The language pairs that glossaries support. The list is empty if the server keeps no
    glossaries."""

    supported_languages: list[DeepLGlossaryPair]


class DeepLNewMultilingualGlossary(Wire):
    """A glossary to create."""

    name: str
    dictionaries: Annotated[list[DeepLNewDictionary], Field(min_length=1)]


class DeepLGlossaryPatch(Wire):
    """Changes to a glossary; omitted fields stay."""

    name: str | None = None
    dictionaries: list[DeepLNewDictionary] | None = None
    """Entries to add. A term that is already there gets the new translation."""


class DeepLDictionary(Wire):
    """The record of a dictionary: the entries for one language pair."""

    source_lang: str
    target_lang: str
    entry_count: int


class DeepLMultilingualGlossary(Wire):
    """A glossary's record."""

    glossary_id: str
    name: str
    creation_time: str
    """Time in UTC, ISO 8601."""
    dictionaries: list[DeepLDictionary]


class DeepLMultilingualGlossaries(Wire):
    """All glossaries, oldest first."""

    glossaries: list[DeepLMultilingualGlossary]


class DeepLPairRequest(Wire):
    """Selects a dictionary of a glossary."""

    source_lang: str
    target_lang: str


class DeepLDictionaryEntries(Wire):
    """The entries for a language pair."""

    source_lang: str
    target_lang: str
    entries: str
    """One entry per line: a term, a tab and its translation."""
    entries_format: Literal["tsv"] = "tsv"


class DeepLEntries(Wire):
    """The entries of one dictionary."""

    dictionaries: list[DeepLDictionaryEntries]
