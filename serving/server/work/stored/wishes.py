"""What a request names of the store: glossaries, and a translation memory."""

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
    """Which glossaries and which memory are to be used, and how."""

    glossaries: Sequence[str] = ()
    """Ids; of a term that several have, that of the first counts."""
    memory: str = ""
    """Id; empty for none."""
    threshold: float | None = None
    """Percent of likeness that a segment of the memory must have; None is the usual."""
    as_prefix: bool = False
    """Whether a segment that is only like a sentence gives the beginning of its translation."""


NO_STORED = StoredWishes()


async def with_stored(
    store: Store | None,
    catalogue: Catalogue,
    job: TranslationJob,
    wishes: StoredWishes,
    owner: str,
) -> TranslationJob:
    """The job with the glossaries and the memory that are named; raises as `stored_terms` and
    `stored_memory` do."""
    if wishes.glossaries:
        terms = await stored_terms(store, catalogue, job, wishes.glossaries, owner)
        job = replace(job, glossary=terms)
    if wishes.memory:
        found = await stored_memory(store, catalogue, job, wishes.memory, wishes.threshold, owner)
        job = replace(job, memory=replace(found, as_prefix=wishes.as_prefix))
    return job
