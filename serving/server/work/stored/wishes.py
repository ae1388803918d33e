"""Stored data that a request names: glossaries, and a translation memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from serving.server.models.catalogue import Catalogue
from serving.server.work.stored.glossaries import stored_terms
from serving.server.work.stored.memories import stored_memory
from serving.server.work.translating.job import TranslationJob

if TYPE_CHECKING:
    from serving.store.store import Store


@dataclass(frozen=True, kw_only=True)
class StoredWishes:
    """The glossaries and the memory to use, and how to use them."""

    glossaries: Sequence[str] = ()
    """Ids of glossaries; if several have a term, the first one wins."""
    memory: str = ""
    """Id of the memory; empty for none."""
    threshold: float | None = None
    """Smallest similarity in percent of a segment that is used; None is the default."""
    as_prefix: bool = False
    """Whether a similar segment gives the beginning of a translation, rather than the whole."""


NO_STORED = StoredWishes()


async def with_stored(
    store: Store | None,
    catalogue: Catalogue,
    job: TranslationJob,
    wishes: StoredWishes,
    owner: str,
) -> TranslationJob:
    """The job with the glossaries and the memory that are named. Raises what `stored_terms` and
    `stored_memory` do."""
    if wishes.glossaries:
        terms = await stored_terms(store, catalogue, job, wishes.glossaries, owner)
        job = replace(job, glossary=terms)
    if wishes.memory:
        found = await stored_memory(store, catalogue, job, wishes.memory, wishes.threshold, owner)
        job = replace(job, memory=replace(found, as_prefix=wishes.as_prefix))
    return job
