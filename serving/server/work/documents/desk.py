"""Accepts documents, reports their state and returns the results; translates them one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from serving.errors import (
    CancelledError,
    InvalidOptionError,
    NoStoreError,
    NotReadyError,
    OverloadedError,
    RequestError,
    ServingError,
    UnknownLanguageError,
    install_command,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings, variable
from serving.server.http.upload import Upload
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.work.documents.pictures import Pictures
from serving.server.work.documents.shelf import (
    DocumentRecord,
    Picture,
    Shelf,
    clean_name,
    new_id,
    unknown_document,
)
from serving.server.work.documents.translating import DocumentTranslation
from serving.server.work.stored.wishes import NO_STORED, StoredWishes, with_stored
from serving.server.work.translating.job import TranslationJob
from serving.server.work.translating.jobs import Jobs

if TYPE_CHECKING:
    from serving.store.store import Store

_LOOK_S = 2.0
"""Seconds between checks for documents that another worker has left."""
_SWEEP_S = 60.0
_POLL_S = 0.2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DocumentWishes:
    """The options for translating a document."""

    source: str
    """Language code, or `auto`."""
    target: str
    model: str | None = None
    bilingual: bool = False
    retranslate: bool = False
    """Whether texts that already have a translation are translated again."""
    columns: tuple[str, ...] = ()
    """Columns of a table to translate, by name or by number from 1."""
    output_format: str = ""
    """Format of the result, as a suffix without its dot; empty for the usual one."""
    stored: StoredWishes = NO_STORED
    """The stored glossaries and memory to use."""
    public: bool = False
    """Whether anyone who knows the document's id may have it, without a key."""
    secret: str = ""
    """A secret that is needed for the document; empty if its id and the key are enough."""


class Documents:
    """The documents of a server. Its methods belong to the event loop."""

    def __init__(
        self, jobs: Jobs, catalogue: Catalogue, settings: Settings, store: Store | None = None
    ) -> None:
        """Create the desk. Nothing is written or started before the first document, or `start`.
        `store` contains the glossaries and memories."""
        self._jobs, self._catalogue, self._settings = jobs, catalogue, settings
        self._store = store
        self._pictures = Pictures()
        self._made: Shelf | None = None
        self._wake: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Continue with the documents of an earlier process, if they outlive one."""
        if self._settings.documents is not None:
            self._begin()

    async def submit(
        self, upload: Upload, wishes: DocumentWishes, context: RequestContext
    ) -> DocumentRecord:
        """Accept a document; returns its record.

        Raises RequestError for unknown languages, models and kinds of files, NoStoreError if
        several workers share no folder, OverloadedError if too many documents wait, and
        StoreUnavailableError if the disk is full.
        """
        self._check_wishes(wishes)
        shelf = self._begin()
        asked = TranslationJob(
            texts=[], source=wishes.source, target=wishes.target, model=wishes.model
        )
        await with_stored(
            self._store,
            self._catalogue,
            asked,
            wishes.stored,
            context.key,
        )
        name = clean_name(upload.name)
        suffix = await run_in_threadpool(_output_suffix, upload, name, wishes)
        if await run_in_threadpool(lambda: shelf.num_waiting) >= self._settings.max_documents:
            raise OverloadedError(
                f"at most {self._settings.max_documents} documents may wait "
                f"({variable('max_documents')}); try again later"
            )
        record = DocumentRecord(
            id=new_id(),
            owner="" if wishes.public else context.key,
            client=context.client,
            key=context.key,
            characters_a_month=context.limits.characters_a_month,
            name=name,
            source=wishes.source,
            target=wishes.target,
            model=wishes.model,
            bilingual=wishes.bilingual,
            retranslate=wishes.retranslate,
            columns=wishes.columns,
            output_suffix=suffix,
            glossaries=tuple(wishes.stored.glossaries),
            memory=wishes.stored.memory,
            memory_threshold=wishes.stored.threshold,
            memory_as_prefix=wishes.stored.as_prefix,
            secret=_digest(wishes.secret),
            created=time.time(),
        )
        await run_in_threadpool(shelf.add, record, upload.file)
        assert self._wake is not None
        self._wake.set()
        return record

    async def find(self, id: str, owner: str, secret: str = "") -> DocumentRecord:
        """The record of a document. Raises UnknownDocumentError, also for another owner's document
        and for a wrong secret."""
        if self._made is None and self._settings.documents is None:
            raise unknown_document()  # no document has been submitted
        record = await run_in_threadpool(self._begin().get, id, owner)
        if not hmac.compare_digest(record.secret, _digest(secret)):
            raise unknown_document()
        return record

    def result(self, record: DocumentRecord) -> Path:
        """The translated file of a finished document."""
        return self._begin().result(record)

    def has_pictures(self, record: DocumentRecord) -> bool:
        """Whether pictures of its first page are available, before and after the translation."""
        return record.state == "done" and self._pictures.can_draw(record.format)

    async def picture(self, record: DocumentRecord, which: Picture) -> Path:
        """The picture of a document's first page as PNG. Raises RequestError if there is none."""
        shelf = self._begin()
        file = shelf.file(record) if which == "before" else shelf.result(record)
        picture = shelf.picture(record, which)
        drawn = self.has_pictures(record) and await self._pictures.draw(
            file, record.format, picture
        )
        if not drawn:
            raise RequestError(
                "there is no picture of this document: pictures are of office files that are "
                "done, where the server has LibreOffice and that can read them"
            )
        return picture

    async def take(self, record: DocumentRecord) -> Response:
        """The response with the translated file. It removes the document, so nobody finds it any
        more. Raises what `file_response` does."""
        response = file_response(self, record)
        folder = await run_in_threadpool(self._begin().take, record)
        response.path = folder / Path(response.path).name
        response.background = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
        return response

    async def remove(self, record: DocumentRecord) -> None:
        """Delete a document with its result. If it is being translated, that stops."""
        await run_in_threadpool(self._begin().remove, record)

    async def changes(self, record: DocumentRecord) -> AsyncIterator[DocumentRecord]:
        """Yield the record of a document, at first and after each change up to its end. Raises
        UnknownDocumentError once it has been deleted."""
        shelf = self._begin()
        yield record
        while not record.ready:
            await asyncio.sleep(_POLL_S)
            now = await run_in_threadpool(shelf.get, record.id, record.owner)
            if now != record:
                record = now
                yield record

    async def finished(self, record: DocumentRecord, timeout_s: float) -> DocumentRecord:
        """Wait for the end of a document. Raises TimeoutError, after which the translation
        continues."""
        async with asyncio.timeout(timeout_s):
            async for each in self.changes(record):
                record = each
        return record

    async def close(self) -> None:
        """Stop. Unfinished documents wait for the next start, if they outlive this process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _check_wishes(self, wishes: DocumentWishes) -> None:
        catalogue = self._catalogue
        source, target = catalogue.codes(wishes.source, wishes.target, wishes.model)
        if source == AUTO:
            catalogue.sources(target, wishes.model)
        elif target not in (source, *catalogue.targets(source)):
            read = source in catalogue.source_languages
            raise UnknownLanguageError(
                f"{target if read else source} is not supported",
                parameter="target" if read else "source",
            )

    def _begin(self) -> Shelf:
        """The shelf; the first call creates it and starts translating the documents on it."""
        if self._made is None:
            self._made = Shelf(self._folder())
        if self._wake is None:
            self._wake = asyncio.Event()
            translation = DocumentTranslation(
                self._made, self._jobs, self._catalogue, self._settings, self._store
            )
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._work(self._made, self._wake, translation)),
                loop.create_task(self._sweep(self._made)),
            ]
        return self._made

    def _folder(self) -> Path:
        if self._settings.documents is not None:
            return self._settings.documents
        if self._settings.workers > 1:
            raise NoStoreError(
                f"{self._settings.workers} workers need a shared folder for documents; set "
                f"{variable('documents')}"
            )
        folder = tempfile.mkdtemp(prefix="macaron-documents-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    async def _work(
        self, shelf: Shelf, wake: asyncio.Event, translation: DocumentTranslation
    ) -> None:
        while True:
            wake.clear()
            # The lock belongs to the thread that takes it, so it is entered and left in one thread.
            claim = shelf.claimed()
            record = await run_in_threadpool(claim.__enter__)
            try:
                if record is not None:
                    await self._translate(shelf, record, translation)
            finally:
                claim.__exit__(None, None, None)
            if record is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), _LOOK_S)

    async def _translate(
        self, shelf: Shelf, record: DocumentRecord, translation: DocumentTranslation
    ) -> None:
        extra = {"request_id": record.id}
        try:
            await translation.run(record)
        except CancelledError:
            logger.info("a document was deleted before its end", extra=extra)
            return
        except OverloadedError:  # the models are being loaded, or the server is about to end
            await asyncio.sleep(_LOOK_S)
            return
        except ServingError as error:
            reason = str(error)
        except ModuleNotFoundError as error:
            reason = (
                f"this server cannot read such files, because {error.name} is not installed; its "
                f"operator can install it with `{install_command('documents')}`"
            )
        except OSError as error:
            reason = f"the result cannot be written ({error.strerror}); try again later"
            logger.warning("a document failed: %s", reason, extra=extra)
        except Exception:  # a broken file may make a library raise anything
            reason = "the file cannot be read or written again; save it again and retry"
            logger.warning("a document failed", exc_info=True, extra=extra)
        else:
            logger.info("a document is done", extra=extra)
            return
        shelf.result(record).unlink(missing_ok=True)
        failed = dataclasses.replace(record, state="failed", ended=time.time(), error=reason)
        try:
            await run_in_threadpool(shelf.save, failed)
        except OSError:  # a full disk has no room even for that: it is tried again
            await asyncio.sleep(_SWEEP_S)

    async def _sweep(self, shelf: Shelf) -> None:
        """Delete documents whose time is over."""
        while True:
            before = time.time() - self._settings.document_hours * 3600
            await run_in_threadpool(shelf.sweep, before)
            await asyncio.sleep(_SWEEP_S)


def _output_suffix(upload: Upload, name: str, wishes: DocumentWishes) -> str:
    """The suffix of the output, if a file is written as another kind.

    Raises DocumentError for a file of no known kind, and InvalidOptionError for an unsupported
    output, for columns in a file without columns, and for a table without chosen columns.
    """
    # Imported here, because a server without documents does not need it.
    from serving.documents.recognition import recognised
    from serving.documents.unit import ReadingWishes

    upload.file.seek(0)
    content = upload.file.read()
    upload.file.seek(0)
    format = recognised(content, name)
    if format.in_columns != bool(wishes.columns):
        format.read(content, ReadingWishes(columns=wishes.columns))  # raises, unless it is empty
    possible = format.written_as or (PurePath(name).suffix.lower(),)
    wanted = f".{wishes.output_format.lower()}" if wishes.output_format else possible[0]
    if wanted not in possible:
        can = " or ".join(suffix.lstrip(".") for suffix in possible)
        raise InvalidOptionError(
            f"'output_format' must be what the file becomes ({can or 'none'}), got "
            f"{wishes.output_format.lower()[:20]!r}; leave it out, and convert the translation",
            parameter="output_format",
        )
    return wanted if format.written_as else ""


def output_name(record: DocumentRecord) -> str:
    """The name of the translated file: `report.docx` becomes `report.en.docx`."""
    path = PurePath(record.name)
    return f"{path.stem}.{record.target}{record.output_suffix or path.suffix}"


def file_response(documents: Documents, record: DocumentRecord) -> FileResponse:
    """The response with the translated file. Raises NotReadyError before it exists, and
    RequestError if it will never exist."""
    if record.state == "failed":
        raise RequestError(f"the document could not be translated: {record.error}")
    if record.state != "done":
        error = NotReadyError("the document is still being translated; try again later")
        error.retry_after_s = 2.0
        raise error
    name = quote(output_name(record))
    return FileResponse(
        documents.result(record),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest() if secret else ""
