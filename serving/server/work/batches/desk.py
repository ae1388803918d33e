"""Creates, looks up and deletes files and batches for the API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from starlette.concurrency import run_in_threadpool

from serving.errors import InvalidOptionError, NoStoreError, RequestError
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings, variable
from serving.server.http.upload import Upload
from serving.server.work.batches.bucket import FileBucket, files_at
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.records import (
    KIND,
    BatchWishes,
    UnknownBatchError,
    UnknownFileError,
    written,
)
from serving.server.work.batches.running import Answering, Refuse
from serving.server.work.batches.worker import BatchWorker, kept_s
from serving.server.work.documents.shelf import clean_name
from serving.server.work.stored.store import needed_store
from serving.store.records.job import KeptFile, KeptJob

if TYPE_CHECKING:
    from serving.store.store import Store

PURPOSE = "batch"
"""Purpose of uploaded files."""
WINDOW_S = 24 * 3600.0
"""Time within which a batch must end."""


class Batches:
    """The files and batches of a server; used on the event loop only."""

    def __init__(
        self,
        store: Store | None,
        settings: Settings,
        gatekeeper: Gatekeeper,
        answering: Mapping[str, Answering],
        refuse: Refuse,
    ) -> None:
        """`answering` maps a path to the function that answers a line for it. Nothing is created or
        started before `start` or the first batch."""
        self._store, self._settings, self._gatekeeper = store, settings, gatekeeper
        self._answering, self._refuse = answering, refuse
        self._made: FileFolder | FileBucket | None = None
        self._worker: BatchWorker | None = None

    def start(self) -> None:
        """Resume batches of an earlier process, if the server stores any."""
        if self._worker is None and self._store is not None and self._place(self._store):
            store, folder = self._needed()
            self._worker = BatchWorker(
                store, folder, self._settings, self._gatekeeper, self._answering, self._refuse
            )
            self._worker.start()

    async def close(self) -> None:
        """Stop; another server, or the next start, resumes unfinished batches."""
        if self._worker is not None:
            await self._worker.close()
            self._worker = None

    async def upload(
        self, upload: Upload, seconds: float | None, context: RequestContext
    ) -> KeptFile:
        """Store a file, for `keep_s` seconds if that is less than the default.

        Raises NoStoreError, QuotaExceededError if the key has too many files, and
        StoreUnavailableError if the disk is full.
        """
        store, folder = self._needed()
        upload.file.seek(0, 2)
        moment = time.time()
        file = KeptFile(
            id=f"file-{uuid.uuid4().hex}",
            owner=context.key,
            purpose=PURPOSE,
            name=clean_name(upload.name),
            size=upload.file.tell(),
            created=moment,
            expires=moment + kept_s(self._settings, seconds),
        )

        def keep() -> None:
            upload.file.seek(0)
            folder.keep(file.id, upload.file)
            try:
                store.files.add(file, self._settings.max_files)
            except BaseException:
                folder.remove(file.id)
                raise

        await run_in_threadpool(keep)
        return file

    async def file(self, id: str, context: RequestContext) -> KeptFile:
        """The record of a file; raises UnknownFileError, also for a file of another key."""
        store, _ = self._needed()
        return _found(await run_in_threadpool(store.files.get, context.key, id), id)

    async def files(
        self,
        purpose: str | None,
        after: str | None,
        most: int,
        context: RequestContext,
        *,
        newest: bool,
    ) -> list[KeptFile]:
        """At most `most` files behind the file `after`, of one purpose if it is given."""
        if self._store is None:
            return []
        files = self._store.files
        return await run_in_threadpool(files.page, context.key, purpose, after, most, newest=newest)

    async def content(self, file: KeptFile) -> Path | BinaryIO:
        """Path of a file, or the open file, which the caller closes. Raises UnknownFileError if its
        content is gone, StoreUnavailableError."""
        try:
            return await run_in_threadpool(self._needed()[1].content, file.id)
        except FileNotFoundError as error:
            raise _unknown_file(file.id) from error

    async def delete(self, id: str, context: RequestContext) -> None:
        """Delete a file; raises UnknownFileError."""
        store, folder = self._needed()
        if not await run_in_threadpool(store.files.delete, context.key, id):
            raise _unknown_file(id)
        await run_in_threadpool(folder.remove, id)

    async def create(self, wishes: BatchWishes, context: RequestContext) -> KeptJob:
        """Create a batch that answers the lines of a file.

        Raises RequestError for an endpoint that batches do not support, UnknownFileError,
        NoStoreError, and QuotaExceededError if the key has too many batches.
        """
        store, _ = self._needed()
        if wishes.endpoint not in self._answering:
            raise InvalidOptionError(
                f"endpoint must be one of {sorted(self._answering)}, got {wishes.endpoint!r}",
                parameter="endpoint",
            )
        moment = time.time()
        job = KeptJob(
            id=f"batch_{uuid.uuid4().hex}",
            owner=context.key,
            kind=KIND,
            wishes=written(wishes),
            created=moment,
            deadline=moment + WINDOW_S,
        )

        def keep() -> None:
            file = store.files.get(context.key, wishes.input_file)
            if _found(file, wishes.input_file).purpose != PURPOSE:
                raise RequestError(
                    f"input_file_id must be a file of the purpose {PURPOSE!r}",
                    parameter="input_file_id",
                )
            store.jobs.add(job, self._settings.max_batches, self._settings.max_kept_batches)
            # As long as it may be needed, whatever the general time limit of files.
            needed = job.deadline + kept_s(self._settings, None)
            store.files.keep_until(context.key, wishes.input_file, needed)

        await run_in_threadpool(keep)
        self.start()
        if self._worker is not None:
            self._worker.wake()
        return job

    async def batch(self, id: str, context: RequestContext) -> KeptJob:
        """The record of a batch; raises UnknownBatchError, also for a batch of another key."""
        store, _ = self._needed()
        return _known(await run_in_threadpool(store.jobs.get, context.key, id), id)

    async def batches(self, after: str | None, most: int, context: RequestContext) -> list[KeptJob]:
        """At most `most` batches behind the batch `after`, newest first."""
        if self._store is None:
            return []
        return await run_in_threadpool(self._store.jobs.page, context.key, KIND, after, most)

    async def cancel(self, id: str, context: RequestContext) -> KeptJob:
        """Cancel a batch; raises UnknownBatchError, and RequestError if it has ended."""
        store, _ = self._needed()
        keep_s = kept_s(self._settings, None)
        before = _known(await run_in_threadpool(store.jobs.get, context.key, id), id)
        if before.ended is not None and before.state != "cancelled":
            raise RequestError(f"the batch has ended already ({before.state})")
        return _known(await run_in_threadpool(store.jobs.cancel, context.key, id, keep_s), id)

    def _needed(self) -> tuple[Store, FileFolder | FileBucket]:
        store = needed_store(self._store, "files and batches")
        if self._made is None:
            place = self._place(store)
            if place is None:
                raise NoStoreError(
                    "files and batches need a folder or an object store that the servers of a "
                    f"store share; its operator can set {variable('files')}"
                )
            self._made = files_at(place)
        return store, self._made

    def _place(self, store: Store) -> str | Path | None:
        """The folder of files, or the URL of an object store; None if neither is set."""
        if self._settings.files:
            return self._settings.files
        file = store.database.file
        return file.with_name(f"{file.name}-files") if file else None


def _found(file: KeptFile | None, id: str) -> KeptFile:
    if file is None:
        raise _unknown_file(id)
    return file


def _unknown_file(id: str) -> UnknownFileError:
    return UnknownFileError(
        f"there is no file {id!r}; it never existed, was deleted, or has expired",
        parameter="file_id",
    )


def _known(job: KeptJob | None, id: str) -> KeptJob:
    if job is None or job.kind != KIND:
        raise UnknownBatchError(
            f"there is no batch {id!r}; it never existed, or has expired",
            parameter="batch_id",
        )
    return job
