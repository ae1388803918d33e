"""Translation memories, for every dialect: those that a request names, and their files."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from serving.errors import DocumentError, RequestError, ServingError
from serving.server.http.settings import Settings
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.work.stored.glossaries import named_pair
from serving.server.work.stored.store import needed_store
from serving.server.work.threads import on_threads_for
from serving.server.work.translating.job import TranslationJob
from serving.store.records.memory import MemoryJob, MemoryLimits, StoredMemory, is_usable
from serving.text.memory.segments import DEFAULT_THRESHOLD, MemoryUse, Segment

if TYPE_CHECKING:
    from serving.store.memories import Memories
    from serving.store.store import Store

logger = logging.getLogger(__name__)

READERS = "files of memories"
"""Purpose of the threads that read files (see `on_threads_for`): a file may take a minute or
more."""
TMX = "application/x-tmx+xml"
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_CODE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,3}")


@dataclass(frozen=True)
class FileRead:
    """The result of reading a file into a memory."""

    memory: StoredMemory
    added: int
    skipped: int
    """Number of units that lack one of the two languages, or are too long."""


def memory_limits(settings: Settings) -> MemoryLimits:
    """The limits for an owner's memories, from the settings."""
    return MemoryLimits(
        settings.max_memories, settings.max_memory_segments, settings.max_segment_chars
    )


def memory_pair(catalogue: Catalogue, source: str, target: str) -> tuple[str, str]:
    """The languages of a memory as they are stored, in small letters. Raises RequestError for a
    text that is not a language code, and if both languages are the same."""
    for name, code in (("source", source), ("target", target)):
        if not _CODE.fullmatch(code) or code.lower() == AUTO:
            raise RequestError(
                f"{name} must be the code of a language, such as en or pt-BR, got {code[:50]!r}",
                parameter=name,
            )
    pair = named_pair(catalogue, source.replace("_", "-"), target.replace("_", "-"))
    if pair[0] == pair[1]:
        raise RequestError(
            f"a memory must have two languages, got {source} twice", parameter="target"
        )
    return pair


def percentage(fields: Mapping[str, str], name: str) -> float | None:
    """The threshold in a field of a form, or None if it is missing. Raises RequestError for a text
    that is not a number."""
    given = fields.get(name, "").strip()
    if not given:
        return None
    if not _NUMBER.fullmatch(given):
        raise RequestError(
            f"{name} must be a percentage from 0 to 100, got {given[:50]!r}", parameter=name
        )
    return float(given)


async def stored_memory(
    store: Store | None,
    catalogue: Catalogue,
    job: TranslationJob,
    id: str,
    threshold: float | None,
    owner: str,
) -> MemoryUse:
    """The memory with this id for the languages of a job. If the job has no source language, it
    applies to the texts in the memory's language.

    Raises RequestError if the memory is for other languages, InvalidOptionError for a threshold
    that is not a percentage, UnknownMemoryError, NoStoreError and StoreUnavailableError.
    """
    kept = needed_store(store, "memories").memories
    source, target = catalogue.codes(job.source, job.target, job.model)
    known = None if source == AUTO else source
    at_least = DEFAULT_THRESHOLD if threshold is None else threshold
    return await on_threads_for("memories", lambda: kept.use(owner, id, known, target, at_least))


def add_file(
    kept: Memories, owner: str, memory: StoredMemory, file: IO[bytes], limits: MemoryLimits
) -> FileRead:
    """Add the segments of a TMX file to a memory; if the file is incomplete, none of them.

    Raises DocumentError if the file cannot be read, and QuotaExceededError if the memory has too
    little room.
    """
    # Imported here, because a server without such files does not need these libraries.
    from serving.documents.localisation.segments import tmx_languages, tmx_pairs

    tmx_languages(file)  # to its end, before anything is written
    added = skipped = 0

    def usable() -> Iterator[Segment]:
        nonlocal added, skipped
        for pair in tmx_pairs(file, memory.source, memory.target):
            segment = pair and Segment(*pair)
            if segment and is_usable(segment, limits):
                added += 1
                yield segment
            else:
                skipped += 1

    after = kept.add(owner, memory.id, usable(), limits)
    return FileRead(after, added, skipped)  # others may have added to it meanwhile


def new_of_file(
    kept: Memories,
    catalogue: Catalogue,
    owner: str,
    name: str,
    file: IO[bytes],
    limits: MemoryLimits,
) -> FileRead:
    """Create a memory from a TMX file with two languages; if that fails, no memory remains.

    Raises DocumentError if the file cannot be read, or has more languages; RequestError and
    QuotaExceededError as creating a memory and adding to it does.
    """
    from serving.documents.localisation.segments import tmx_languages

    languages = tmx_languages(file)
    if len(languages.others) != 1:
        raise DocumentError(
            f"the file must have one language beside {languages.source or 'that of its source'}, "
            f"got {', '.join(languages.others) or 'none'}; make a memory for each, and read the "
            "file into them by /memories/{id}/tmx"
        )
    pair = memory_pair(catalogue, languages.source, languages.others[0])
    memory = kept.create(owner, name, *pair, limits)
    with forgotten_on_error(kept, owner, memory):
        return add_file(kept, owner, memory, file, limits)


def read_job(
    store: Store,
    catalogue: Catalogue,
    owner: str,
    job: MemoryJob,
    file: IO[bytes],
    limits: MemoryLimits,
) -> None:
    """Create a memory from the file of a job, and record the outcome in the job; closes the file.
    Errors are recorded too, because nobody waits for the outcome."""
    with contextlib.closing(file):
        try:
            read = new_of_file(store.memories, catalogue, owner, job.name, file, limits)
            store.memory_jobs.done(job, read.memory.id, read.skipped)
        except ServingError as error:
            try:
                store.memory_jobs.failed(job, error.full_message)
            except ServingError as other:
                logger.error("the outcome of reading a memory's file is lost: %s; %s", error, other)


@contextlib.contextmanager
def forgotten_on_error(kept: Memories, owner: str, memory: StoredMemory) -> Iterator[None]:
    """Delete a newly created memory if the block raises."""
    try:
        yield
    except BaseException:
        kept.delete(owner, memory.id)
        raise


def memory_file(kept: Memories, owner: str, memory: StoredMemory) -> Iterator[bytes]:
    """Yield a memory as TMX, in parts, as it is read from the store."""
    from serving.documents.localisation.segments import written_tmx

    return written_tmx(kept.every_segment(owner, memory.id), memory.source, memory.target)
