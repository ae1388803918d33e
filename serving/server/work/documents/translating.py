"""Translates one document: its units in small groups, so that clients' requests can come between
them. A sentence that occurs in several units is decoded once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import itertools
import json
import random
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.documents.raw.writing import write_whole
from serving.documents.texts.pieces import in_pieces
from serving.documents.unit import FileFormat, FileInUnits, ReadingWishes, Translated, Unit
from serving.errors import (
    CancelledError,
    DecodingError,
    InvalidOptionError,
    RequestError,
    ServingError,
    StoreUnavailableError,
    TooLongError,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.work.courtesy import FATAL, PASSING, Tries, attentive, pause_after
from serving.server.work.documents.shelf import DocumentRecord, Shelf
from serving.server.work.stored.wishes import StoredWishes, with_stored
from serving.server.work.translating.job import TextResult, TranslationJob
from serving.server.work.translating.jobs import Jobs
from serving.server.work.translating.sentences import DocumentSentences
from serving.store.records.key import KeyLimits
from serving.text.alignment import Link
from serving.text.characters import counted_characters
from serving.text.detection import MAX_CHARS

if TYPE_CHECKING:
    from serving.store.store import Store

_GROUP_TEXTS = 16
_GROUP_CHARACTERS = 2000
"""Largest number of characters of a group that is queued at once; longer units are divided if
possible."""
_SAVE_EVERY_S = 0.5
_TASK = "document"
"""Name of the task in the usage of keys."""
_AGAIN = (CancelledError, *PASSING)
"""Errors after which the same group is sent again; the first if another group that waited for the
same sentence cancelled it."""
_OF_A_UNIT = (TooLongError, DecodingError, *FATAL)
"""Errors whose cause is a unit of the group, even if they do not say which."""
_NUMBERS = 10**6


@dataclass(frozen=True)
class _Group:
    """Units that one job translates."""

    numbers: Sequence[int]
    """Numbers of the group's units among the distinct units."""
    units: Sequence[Unit]


@dataclass(frozen=True)
class _Common:
    """Data that all groups of a document share."""

    record: DocumentRecord
    sentences: DocumentSentences
    links: bool
    """Whether the models give word links."""
    warnings: dict[str, None] = field(default_factory=dict)
    """Warnings about units that stay untranslated, in order of appearance."""


class DocumentTranslation:
    """Translates the documents on a shelf with the models of a server."""

    def __init__(
        self,
        shelf: Shelf,
        jobs: Jobs,
        catalogue: Catalogue,
        settings: Settings,
        store: Store | None = None,
    ) -> None:
        self._shelf, self._jobs, self._store = shelf, jobs, store
        self._catalogue, self._settings = catalogue, settings

    async def run(self, record: DocumentRecord) -> None:
        """Translate a document, or the rest of it, and write the result beside it.

        Raises RequestError if it cannot be translated, OSError if the result cannot be written, and
        CancelledError if it was deleted meanwhile.
        """
        record = dataclasses.replace(record, state="translating", started=time.time())
        format, file = await asyncio.to_thread(self._read, record)
        source = self._source(record, list(dict.fromkeys(file.units)))
        longest = min(_GROUP_CHARACTERS, self._settings.max_text_chars)
        file = await asyncio.to_thread(in_pieces, file, source, longest)
        distinct = list(dict.fromkeys(file.units))
        # Two models in succession give no word links, and cannot use a memory.
        links = self._catalogue.pivot(source, record.target, record.model) is None
        if record.source == AUTO and record.memory:
            record = await self._with_fitting_memory(record, source, direct=links)
        record = dataclasses.replace(
            record,
            format=format.name,
            output_suffix=record.output_suffix or next(iter(format.written_as), ""),
            source=source,
            total=len(distinct),
            done=0,
        )
        known = await asyncio.to_thread(self._known, record, distinct)
        sentences = await _opened(self._shelf.sentences(record), record.id)
        common = _Common(record, sentences, links)
        try:
            record = await self._translate_rest(common, distinct, known)
        finally:
            sentences.close()
        of_unit = {unit: known[number] for number, unit in enumerate(distinct)}
        written = await asyncio.to_thread(
            self._write, record, file, [of_unit[unit] for unit in file.units]
        )
        every = dict.fromkeys([*record.warnings, *file.warnings, *common.warnings, *written])
        done = dataclasses.replace(
            record, state="done", ended=time.time(), done=record.total, warnings=tuple(every)
        )
        await asyncio.to_thread(self._shelf.save, done)

    async def _translate_rest(
        self, common: _Common, units: Sequence[Unit], known: dict[int, Translated]
    ) -> DocumentRecord:
        """Add translations of the distinct units that have none yet. Returns the record with their
        number and characters."""
        record, saved = common.record, 0.0
        characters = sum(_characters(units[number]) for number in known)
        groups = _groups(units, known)
        async with aclosing(self._translated_groups(common, groups)) as finished:
            async for group, found in finished:
                await asyncio.to_thread(self._keep, common, group, found)
                known.update(zip(group.numbers, found, strict=True))
                characters += sum(map(_characters, group.units))
                record = dataclasses.replace(record, done=len(known), characters=characters)
                if time.monotonic() - saved > _SAVE_EVERY_S:
                    await asyncio.to_thread(self._shelf.save, record)
                    saved = time.monotonic()
        return record

    def _read(self, record: DocumentRecord) -> tuple[FileFormat, FileInUnits]:
        # Imported here, because a server without documents does not need these libraries.
        from serving.documents.recognition import recognised

        content = self._shelf.source(record)
        format = recognised(content, record.name)
        wishes = ReadingWishes(
            target=record.target, retranslate=record.retranslate, columns=record.columns
        )
        return format, format.read(content, wishes)

    def _source(self, record: DocumentRecord, units: Sequence[Unit]) -> str:
        """The language of a document, detected in the whole of it, because cells and headings are
        too short."""
        if record.source != AUTO:
            return self._catalogue.codes(record.source, record.target, record.model)[0]
        sample = "\n".join(unit.text for unit in units[:1000])[: 4 * MAX_CHARS]
        return self._catalogue.detected(sample, record.target, record.model)

    async def _with_fitting_memory(
        self, record: DocumentRecord, source: str, *, direct: bool
    ) -> DocumentRecord:
        """A document whose language was detected, without its memory if that is for another
        language, and with a warning about it."""
        if direct and await self._memory_serves(record, source):
            return record
        warning = (
            f"translated without the memory, which is not for texts from {source} to "
            f"{record.target}"
        )
        return dataclasses.replace(record, memory="", warnings=(*record.warnings, warning))

    async def _memory_serves(self, record: DocumentRecord, source: str) -> bool:
        """Whether the memory of a document has sentences in this language."""
        asked = TranslationJob(texts=[], source=AUTO, target=record.target, model=record.model)
        wishes = StoredWishes(memory=record.memory, threshold=record.memory_threshold)
        while True:
            try:
                job = await with_stored(self._store, self._catalogue, asked, wishes, record.key)
                return job.memory is not None and job.memory.serves(source)
            except StoreUnavailableError as error:
                await pause_after(error)

    async def _translated_groups(
        self, common: _Common, groups: Iterator[_Group]
    ) -> AsyncGenerator[tuple[_Group, list[Translated]]]:
        """Yield the groups with their translations as they finish; as many are translated at once
        as batches are decoded."""
        running: dict[asyncio.Task[list[Translated]], _Group] = {}
        try:
            while True:
                most = 1 if self._attentive else self._settings.threads
                for group in itertools.islice(groups, max(0, most - len(running))):
                    task = asyncio.create_task(self._group(common, group))
                    running[task] = group
                if not running:
                    return
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    yield running.pop(task), task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _group(self, common: _Common, group: _Group) -> list[Translated]:
        """The translations of a group. A unit that cannot be translated stays as it is, with a
        warning.

        While clients send other requests, one unit is translated at a time.
        """
        single = len(group.units) == 1
        try:
            if self._attentive and not single:
                return await self._one_by_one(common, group)
            results = await self._translated(common, group)
        except (RequestError, *_OF_A_UNIT) as error:
            if not isinstance(error, _OF_A_UNIT) and error.index is None:
                raise
            if not single:
                return await self._one_by_one(common, group)
            text = group.units[0].text
            common.warnings[f"left as it is: {text[:60]!r} ({error})"] = None
            return [Translated(text)]
        return [_of_result(result, common.links) for result in results]

    async def _one_by_one(self, common: _Common, group: _Group) -> list[Translated]:
        found = []
        for number, unit in zip(group.numbers, group.units, strict=True):
            found += await self._group(common, _Group([number], [unit]))
        return found

    @property
    def _attentive(self) -> bool:
        """Whether clients are sending requests that they wait for."""
        return attentive(self._jobs.idle_s)

    async def _translated(self, common: _Common, group: _Group) -> Sequence[TextResult]:
        record, first = common.record, group.units[0]
        job = TranslationJob(
            texts=[unit.text for unit in group.units],
            source=record.source,
            target=record.target,
            model=record.model,
            format=first.format,
            alignments=first.links and common.links,
            sentences=common.sentences,
            timeout_s=self._settings.max_timeout_s,
            task=_TASK,
        )
        tries = Tries()
        while True:
            if not self._shelf.is_there(record):
                raise CancelledError("the document has been deleted")
            context = RequestContext(
                record.id,
                client=record.client,
                key=record.key,
                limits=KeyLimits(characters_a_month=record.characters_a_month),
                counted=0 not in group.numbers,  # a document is one request
                background=True,
            )
            try:
                # Looked up each time, which costs nothing if the index is in memory.
                job = await with_stored(
                    self._store,
                    self._catalogue,
                    job,
                    StoredWishes(
                        glossaries=record.glossaries,
                        memory=record.memory,
                        threshold=record.memory_threshold,
                        as_prefix=record.memory_as_prefix,
                    ),
                    record.key,
                )
                return (await self._jobs.translate(job, context, _stays)).translations
            except _AGAIN as error:
                if await tries.may_go_again(error):
                    continue
                if await self._decodes(job, record):
                    raise
                tries = Tries()

    async def _decodes(self, job: TranslationJob, record: DocumentRecord) -> bool:
        """Whether something else can be decoded, so that a text that cannot is itself to blame."""
        # Text without letters would not be decoded, and the answer to a known text may be kept.
        asked = dataclasses.replace(
            job,
            texts=[f"A {random.randrange(_NUMBERS)}"],
            format="text",
            memory=None,
            sentences=None,
        )
        # No key has asked for it.
        context = RequestContext(record.id, client=record.client, counted=True, background=True)
        try:
            await self._jobs.translate(asked, context, _stays)
        except ServingError:
            return False
        return True

    def _known(self, record: DocumentRecord, units: Sequence[Unit]) -> dict[int, Translated]:
        """The translations of these units that an earlier process has stored. Those from another
        division of the document are ignored."""
        path = self._shelf.progress(record)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        if not text.endswith("\n"):  # otherwise the next line would be lost with the last
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")
        found: dict[int, Translated] = {}
        for line in text.splitlines():
            try:
                number, digest, text, links = json.loads(line)
            except ValueError:  # the process ended while writing, or was an older version
                continue
            if number < len(units) and digest == _digest(units[number]):
                found[number] = Translated(text, [_link(each) for each in links])
        return found

    def _keep(self, common: _Common, group: _Group, found: Sequence[Translated]) -> None:
        if not self._shelf.is_there(common.record):
            raise CancelledError("the document has been deleted")
        common.sentences.save()
        with self._shelf.progress(common.record).open("a", encoding="utf-8") as file:
            for number, unit, each in zip(group.numbers, group.units, found, strict=True):
                links = [dataclasses.astuple(link) for link in each.links]
                file.write(json.dumps([number, _digest(unit), each.text, links]) + "\n")

    def _write(
        self, record: DocumentRecord, file: FileInUnits, translations: Sequence[Translated]
    ) -> tuple[str, ...]:
        own = file.write_as.get(record.output_suffix, file.write)
        write = file.write_bilingual if record.bilingual else own
        if write is None:
            raise InvalidOptionError(
                f"a {record.format} file has no room for the source beside its translation; leave "
                "bilingual out",
                parameter="bilingual",
            )
        written = write(translations)
        write_whole(self._shelf.result(record), written.content)
        self._shelf.progress(record).unlink(missing_ok=True)
        self._shelf.sentences(record).unlink(missing_ok=True)
        return written.warnings


async def _opened(path: Path, document: str) -> DocumentSentences:
    """The sentences of a document, from its file. If the task is cancelled while the file is
    opened, it ends when the file is closed again: until then nobody else may have the document."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, DocumentSentences, path, document)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        while not opening.done():
            with contextlib.suppress(asyncio.CancelledError):  # once is enough
                await asyncio.wait([opening])
        with contextlib.suppress(OSError):
            opening.result().close()
        raise


def _groups(units: Sequence[Unit], known: dict[int, Translated]) -> Iterator[_Group]:
    """The units without a translation, in groups of one kind."""
    numbers: list[int] = []
    size = 0
    kind: tuple[str, bool] | None = None
    for number, unit in enumerate(units):
        if number in known:
            continue
        own = unit.format, unit.links
        full = len(numbers) == _GROUP_TEXTS or size + len(unit.text) > _GROUP_CHARACTERS
        if numbers and (own != kind or full):
            yield _Group(numbers, [units[n] for n in numbers])
            numbers, size = [], 0
        kind = own
        numbers.append(number)
        size += len(unit.text)
    if numbers:
        yield _Group(numbers, [units[n] for n in numbers])


def _digest(unit: Unit) -> str:
    return hashlib.sha256(unit.text.encode(errors="surrogatepass")).hexdigest()[:16]


def _characters(unit: Unit) -> int:
    return counted_characters(unit.text, unit.format)


def _of_result(result: TextResult, links: bool) -> Translated:
    found = result.hypotheses[0].alignment if links and result.hypotheses else None
    return Translated(result.text, found or ())


def _link(fields: Sequence[Any]) -> Link:
    source, target, probability = fields
    return Link(tuple(source), tuple(target), probability)


async def _stays() -> dict[str, str]:
    """The `receive` of a client that never disconnects."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}
