"""Operations on the glossaries of a key, for every dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from starlette.concurrency import run_in_threadpool

from serving.server.http.settings import Settings
from serving.server.models.catalogue import Catalogue
from serving.server.work.stored.glossaries import glossary_limits, glossary_pair, named_pair
from serving.server.work.stored.store import needed_store
from serving.store.records.glossary import (
    NewDictionary,
    StoredDictionary,
    StoredGlossary,
    checked_entries,
    entries_of,
)
from serving.store.records.name import checked_name

if TYPE_CHECKING:
    from serving.store.glossaries import Glossaries
    from serving.store.store import Store


class GivenDictionary(NamedTuple):
    """Entries for a language pair, as received from a client."""

    source: str
    target: str
    entries: str | Iterable[tuple[str, str]]
    """Terms and their translations, as pairs or as lines of text."""
    format: Literal["tsv", "csv"] = "tsv"
    """Format of the lines."""


class GlossaryDesk:
    """Stores and returns the glossaries of an owner, who is identified by the key. Raises what
    `Glossaries` does, NoStoreError, and RequestError for entries that may not be stored."""

    def __init__(self, store: Store | None, catalogue: Catalogue, settings: Settings) -> None:
        self._store, self._catalogue = store, catalogue
        self._limits = glossary_limits(settings)

    def check_store(self) -> None:
        """Raise NoStoreError if there is no store, before anything is read."""
        _ = self._kept

    async def page(
        self, owner: str, after: str | None = None, limit: int | None = None
    ) -> Sequence[StoredGlossary]:
        """A page of glossaries, oldest first, that come after the glossary `after`; empty if there
        is no store."""
        if self._store is None:
            return []
        return await run_in_threadpool(self._kept.page, owner, after, limit)

    async def create(
        self, owner: str, name: str, given: Sequence[GivenDictionary]
    ) -> StoredGlossary:
        """Create a glossary."""
        kept = self._kept
        return await run_in_threadpool(
            lambda: kept.create(owner, checked_name(name), self._checked(given), self._limits)
        )

    async def get(self, owner: str, id: str) -> StoredGlossary:
        """The record of a glossary."""
        return await run_in_threadpool(self._kept.get, owner, id)

    async def patch(
        self, owner: str, id: str, name: str | None, given: Sequence[GivenDictionary]
    ) -> StoredGlossary:
        """Rename a glossary, if `name` is given, and add entries."""
        kept = self._kept

        def patched() -> StoredGlossary:
            named = None if name is None else checked_name(name)
            return kept.patch(owner, id, named, self._checked(given), self._limits)

        return await run_in_threadpool(patched)

    async def replace(self, owner: str, id: str, given: GivenDictionary) -> StoredDictionary:
        """Replace the dictionary for a language pair, or add it."""
        kept = self._kept
        return await run_in_threadpool(
            lambda: kept.replace(owner, id, self._checked([given])[0], self._limits)
        )

    async def delete(self, owner: str, id: str) -> None:
        """Delete a glossary."""
        await run_in_threadpool(self._kept.delete, owner, id)

    async def entries(self, owner: str, id: str, source: str, target: str) -> dict[str, str]:
        """The entries for a language pair."""
        pair = named_pair(self._catalogue, source, target)
        return await run_in_threadpool(self._kept.entries, owner, id, *pair)

    async def delete_entries(self, owner: str, id: str, source: str, target: str) -> None:
        """Delete the entries for a language pair."""
        pair = named_pair(self._catalogue, source, target)
        await run_in_threadpool(self._kept.delete_dictionary, owner, id, *pair)

    @property
    def _kept(self) -> Glossaries:
        return needed_store(self._store, "glossaries").glossaries

    def _checked(self, given: Sequence[GivenDictionary]) -> list[NewDictionary]:
        return [self._new(each) for each in given]

    def _new(self, given: GivenDictionary) -> NewDictionary:
        pair = glossary_pair(self._catalogue, given.source, given.target)
        entries = given.entries
        if isinstance(entries, str):
            entries = entries_of(entries, given.format)
        return NewDictionary(*pair, checked_entries(entries, self._limits))
