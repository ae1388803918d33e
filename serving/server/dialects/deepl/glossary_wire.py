"""What goes over the wire for glossaries in DeepL's dialect, of both versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

EntriesFormat = Literal["tsv", "csv"]


class DeepLNewDictionary(Wire):
    """Entries for a language pair."""

    source_lang: str
    """Language code of the terms, in capitals or not; a region that no model knows does not
    count."""
    target_lang: str
    """Language code of their translations, likewise."""
    entries: str
    """Lines of a term and its translation."""
    entries_format: EntriesFormat
    """What stands between the two: a tab, or a comma."""


class DeepLNewGlossary(DeepLNewDictionary):
    """A glossary to make with entries for one language pair."""

    name: str


class DeepLGlossary(Wire):
    """What is known of a glossary with one dictionary."""

    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    """In UTC (ISO 8601)."""
    entry_count: int


class DeepLGlossaries(Wire):
    """The glossaries that have one dictionary, the oldest first."""

    glossaries: list[DeepLGlossary]


class DeepLGlossaryPair(Wire):
    """A language pair that a glossary may be made for."""

    source_lang: str
    target_lang: str


class DeepLGlossaryPairs(Wire):
    """The language pairs that glossaries may be made for; none where none are kept."""

    supported_languages: list[DeepLGlossaryPair]


class DeepLNewMultilingualGlossary(Wire):
    """A glossary to make."""

    name: str
    dictionaries: Annotated[list[DeepLNewDictionary], Field(min_length=1)]


class DeepLGlossaryPatch(Wire):
    """What changes of a glossary; what is left out stays."""

    name: str | None = None
    dictionaries: list[DeepLNewDictionary] | None = None
    """Entries to add to those that are there; a term that is there gets the new translation."""


class DeepLDictionary(Wire):
    """What is known of the entries for a language pair."""

    source_lang: str
    target_lang: str
    entry_count: int


class DeepLMultilingualGlossary(Wire):
    """What is known of a glossary."""

    glossary_id: str
    name: str
    creation_time: str
    """In UTC (ISO 8601)."""
    dictionaries: list[DeepLDictionary]


class DeepLMultilingualGlossaries(Wire):
    """All glossaries, the oldest first."""

    glossaries: list[DeepLMultilingualGlossary]


class DeepLPairRequest(Wire):
    """Which dictionary of a glossary is meant."""

    source_lang: str
    target_lang: str


class DeepLDictionaryEntries(Wire):
    """The entries for a language pair."""

    source_lang: str
    target_lang: str
    entries: str
    """Lines of a term, a tab and its translation."""
    entries_format: Literal["tsv"] = "tsv"


class DeepLEntries(Wire):
    """The entries of one dictionary."""

    dictionaries: list[DeepLDictionaryEntries]
