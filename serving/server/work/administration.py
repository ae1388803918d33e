"""Administration: keys, their usage, and the models of this server.

Every action is recorded in the audit log, if there is a store.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from serving.errors import RequestError, TooLongError, UnknownKeyError
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import variable
from serving.server.models.served import AnyModel, LoadedModel
from serving.server.work.backend import Backend
from serving.server.work.imports import ImportReport
from serving.store.records.key import (
    AuditEntry,
    KeyLimits,
    StoredKey,
    UsageCount,
    UsageQuery,
    UsageRow,
)
from serving.text.characters import check_text

T = TypeVar("T")

MOST_DAYS = 366
"""Most days of one usage report."""


@dataclass(frozen=True)
class ModelUse:
    """A served model and its use."""

    model: AnyModel
    loaded: bool
    num_bytes: int
    """Size of its files in bytes."""
    asked_s: float | None
    """Seconds since the last request for it; None if there was none, or if this is not recorded."""


class Administration:
    """Administers one server and the keys of its store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def keys(self, most: int, after: str = "") -> list[StoredKey]:
        """At most `most` keys, oldest first, that come after the key with the id `after`."""
        store = self._backend.needed_store("keys")
        return await run_in_threadpool(store.keys.listed, most, after)

    async def key(self, id: str) -> StoredKey:
        """The key with this id; raises UnknownKeyError."""
        store = self._backend.needed_store("keys")
        return _known(await run_in_threadpool(store.keys.get, id), id)

    async def create_key(
        self, label: str, limits: KeyLimits, context: RequestContext
    ) -> tuple[StoredKey, str]:
        """Create a key; returns its record and the key itself, which is not stored."""
        self._check_label(label)
        store, most = self._backend.needed_store("keys"), self._backend.settings.max_keys
        return await run_in_threadpool(store.keys.create, label, limits, context.address, most)

    async def change_key(
        self, id: str, changed: Callable[[StoredKey], StoredKey], context: RequestContext
    ) -> StoredKey:
        """Replace a key's record by the result of `changed`, within one transaction; raises
        UnknownKeyError."""
        store = self._backend.needed_store("keys")

        def checked(key: StoredKey) -> StoredKey:
            new = changed(key)
            self._check_label(new.label)
            return new

        key = await run_in_threadpool(store.keys.change, id, checked, context.address)
        self._backend.gatekeeper.forget(id)
        return _known(key, id)

    async def delete_key(self, id: str, context: RequestContext) -> None:
        """Delete a key and the data that belong to it; its usage stays. Raises UnknownKeyError."""
        store = self._backend.needed_store("keys")
        found = await run_in_threadpool(store.keys.delete, id, context.address)
        self._backend.gatekeeper.forget(id)
        if not found:
            raise UnknownKeyError(_no_key(id), parameter="key")

    async def usage(
        self, query: UsageQuery, most: int, after: tuple[str, str, str] = ("", "", "")
    ) -> tuple[list[UsageRow], dict[str, UsageCount]]:
        """At most `most` usage rows that come after a day, owner and task, and the sums of all rows
        by task. Counts of this server are sent to the store first."""
        store = self._backend.needed_store("usage counts")
        flush = self._backend.gatekeeper.flush

        def read() -> tuple[list[UsageRow], dict[str, UsageCount]]:
            flush()
            return store.usage.rows(query, most, after), store.usage.totals(query)

        return await run_in_threadpool(read)

    async def audit(self, most: int, before: int | None) -> list[AuditEntry]:
        """At most `most` audit entries with a number below `before`, newest first."""
        store = self._backend.needed_store("acts of administration")
        return await run_in_threadpool(store.audit.entries, most, before)

    def models(self) -> list[ModelUse]:
        """All models, translation models first."""
        registry = self._backend.registry
        every: list[AnyModel] = [
            *registry.translators,
            *registry.language_models,
            *registry.encoders,
        ]
        return [
            ModelUse(
                model,
                isinstance(model, LoadedModel),
                registry.num_bytes(model),
                registry.asked_s(model.name),
            )
            for model in every
        ]

    async def load(self, name: str, context: RequestContext) -> None:
        """Load a translation model; raises UnknownModelError and NotReadyError."""
        await run_in_threadpool(self._backend.registry.load_named, name)
        await self._note(context, "load_model", name)

    async def unload(self, name: str, context: RequestContext) -> None:
        """Unload a translation model; raises UnknownModelError."""
        await run_in_threadpool(self._backend.registry.unload_named, name)
        await self._note(context, "unload_model", name)

    async def start_import(self, name: str, context: RequestContext) -> ImportReport:
        """Start the import of a model by name; raises as `Imports.start` does."""
        report = await run_in_threadpool(self._backend.imports.start, name)
        await self._note(context, "import_model", name)
        return report

    async def model_import(self) -> ImportReport:
        """Progress of the last import; raises NoImportsError."""
        return await run_in_threadpool(self._backend.imports.report)

    async def stop_import(self, context: RequestContext) -> ImportReport:
        """Stop the running import; raises NoImportsError."""
        report = await run_in_threadpool(self._backend.imports.stop)
        await self._note(context, "stop_import", report.name)
        return report

    async def drain(self, context: RequestContext) -> None:
        """Make the server report not ready; requests are still served."""
        self._backend.registry.drain()
        await self._note(context, "drain", "")

    async def _note(self, context: RequestContext, act: str, subject: str) -> None:
        store = self._backend.store
        if store is not None:
            await run_in_threadpool(store.audit.note, context.address, act, subject)

    def _check_label(self, label: str) -> None:
        most = self._backend.settings.max_label_chars
        if len(label) > most:
            raise TooLongError(
                f"label must have at most {most} characters ({variable('max_label_chars')}), got "
                f"{len(label)}",
                parameter="label",
            )
        try:
            check_text(label, "label")
        except RequestError as error:
            raise error.at("label") from error


def days(first: str, last: str, parameters: tuple[str, str]) -> tuple[str, str]:
    """Convert two days to the form in the store. Raises RequestError, which names one of the two
    `parameters`, for a text that is not a day (`2026-11-28`, or with a time) and for a range of
    more days than one report may have."""
    found = [_day(text, name) for text, name in zip((first, last), parameters, strict=True)]
    count = (found[1] - found[0]).days + 1
    if not 1 <= count <= MOST_DAYS:
        raise RequestError(
            f"{parameters[0]} to {parameters[1]} must be 1 to {MOST_DAYS} days, got {count}",
            parameter=parameters[0],
        )
    return found[0].isoformat(), found[1].isoformat()


def _day(text: str, parameter: str) -> datetime.date:
    try:
        return datetime.datetime.fromisoformat(text).date()
    except ValueError:
        raise RequestError(
            f"{parameter} must be a day like 2026-11-28, got {text[:40]!r}", parameter=parameter
        ) from None


def _known(key: StoredKey | None, id: str) -> StoredKey:
    if key is None:
        raise UnknownKeyError(_no_key(id), parameter="key")
    return key


def _no_key(id: str) -> str:
    return f"no key has the id {id[:80]!r}; list them"
