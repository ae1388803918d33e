"""Glossaries in the form of DeepL's API."""

from __future__ import annotations

from serving.errors import UnknownGlossaryError
from serving.server.dialects.deepl.answers import iso_time
from serving.server.dialects.deepl.glossary_wire import (
    DeepLDictionary,
    DeepLGlossary,
    DeepLMultilingualGlossary,
)
from serving.store.records.glossary import StoredDictionary, StoredGlossary


def single(found: StoredGlossary) -> DeepLGlossary:
    """A glossary in the form of version 2; raises UnknownGlossaryError if it does not have exactly
    one dictionary."""
    if len(found.dictionaries) != 1:
        raise UnknownGlossaryError(
            f"the glossary {found.id!r} must have one dictionary here, it has "
            f"{len(found.dictionaries)}; ask for /v3/glossaries/{found.id}",
            parameter="glossary_id",
        )
    [dictionary] = found.dictionaries
    return DeepLGlossary(
        glossary_id=found.id,
        name=found.name,
        source_lang=dictionary.source,
        target_lang=dictionary.target,
        creation_time=iso_time(found.created),
        entry_count=dictionary.entry_count,
    )


def multilingual(found: StoredGlossary) -> DeepLMultilingualGlossary:
    """A glossary in the form of version 3."""
    return DeepLMultilingualGlossary(
        glossary_id=found.id,
        name=found.name,
        creation_time=iso_time(found.created),
        dictionaries=[dictionary_info(each) for each in found.dictionaries],
    )


def dictionary_info(found: StoredDictionary) -> DeepLDictionary:
    """A dictionary in the form of version 3."""
    return DeepLDictionary(
        source_lang=found.source, target_lang=found.target, entry_count=found.entry_count
    )
