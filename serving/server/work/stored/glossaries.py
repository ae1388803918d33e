"""Stored glossaries, for every dialect: the language pairs that they may have, and the glossaries
that a request names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from serving.errors import RequestError, UnknownLanguageError
from serving.server.http.settings import Settings
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.work.stored.store import needed_store
from serving.server.work.translating.job import TranslationJob
from serving.store.records.glossary import GlossaryLimits
from serving.text.glossary import TermIndex

if TYPE_CHECKING:
    from serving.store.store import Store

MOST_AT_ONCE = 5
"""Largest number of glossaries in one request."""


def glossary_limits(settings: Settings) -> GlossaryLimits:
    """The limits for an owner's glossaries, from the settings."""
    return GlossaryLimits(
        settings.max_glossaries, settings.max_glossary_entries, settings.max_term_chars
    )


def glossary_pairs(catalogue: Catalogue) -> list[tuple[str, str]]:
    """The pairs of source and target that a glossary may have: those that one model translates, in
    order."""
    return [
        (source, target)
        for target in catalogue.target_languages
        for source in catalogue.sources(target)
        if source != target
    ]


def named_pair(catalogue: Catalogue, source: str, target: str) -> tuple[str, str]:
    """The languages of a dictionary as they are stored: with the models' codes in small letters, or
    as given if no model knows them any more."""
    source, target = catalogue.codes(source, target)
    return source.lower(), target.lower()


def glossary_pair(catalogue: Catalogue, source: str, target: str) -> tuple[str, str]:
    """The `named_pair` of a new dictionary. Raises UnknownLanguageError if no single model
    translates between the two languages."""
    pairs = glossary_pairs(catalogue)
    if catalogue.codes(source, target) not in pairs:
        known = ", ".join(" to ".join(each) for each in sorted(pairs)) or "none"
        raise UnknownLanguageError(
            f"a dictionary must be of a language pair that a model translates ({known}), got "
            f"{source} to {target}",
            parameter="source",
        )
    return named_pair(catalogue, source, target)


async def stored_terms(
    store: Store | None,
    catalogue: Catalogue,
    job: TranslationJob,
    ids: Sequence[str],
    owner: str,
) -> Sequence[TermIndex]:
    """The terms of these glossaries for the languages of a job. If several have a term, the first
    one wins.

    Raises RequestError if the job has no source language, if there are too many glossaries, and if
    one has nothing for the languages; also UnknownGlossaryError, NoStoreError and
    StoreUnavailableError.
    """
    if len(ids) > MOST_AT_ONCE:
        raise RequestError(
            f"a request must name at most {MOST_AT_ONCE} glossaries, got {len(ids)}",
            parameter="glossary_ids",
        )
    if job.source.lower() == AUTO:
        raise RequestError(
            "a glossary needs the language of the texts; send the source language",
            parameter="source",
        )
    kept = needed_store(store, "glossaries").glossaries
    source, target = catalogue.codes(job.source, job.target, job.model)
    return [await run_in_threadpool(kept.index, owner, id, source, target) for id in ids]
