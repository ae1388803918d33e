"""DeepL's translation memories (version 3)."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import TooLongError, UnknownMemoryError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.deepl.answers import STATUSES, iso_time, render_error
from serving.server.dialects.deepl.memory_answers import (
    VALID_S,
    is_late,
    job_info,
    memory_info,
    segments_page,
)
from serving.server.dialects.deepl.memory_wire import (
    DeepLExport,
    DeepLExportParameters,
    DeepLImport,
    DeepLImportRequest,
    DeepLMemories,
    DeepLMemoriesPage,
    DeepLMemory,
    DeepLMemoryJob,
    DeepLSegments,
    DeepLSegmentsPage,
)
from serving.server.dialects.deepl.wire import DeepLError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields, read_json
from serving.server.http.settings import variable
from serving.server.http.upload import read_file
from serving.server.http.wire import json_response, own_address
from serving.server.work.backend import Backend
from serving.server.work.stored.memories import (
    READERS,
    TMX,
    memory_file,
    memory_limits,
    read_job,
)
from serving.server.work.threads import on_threads_for
from serving.store.records.memory import MemoryJob, StoredMemory
from serving.store.records.name import checked_name

if TYPE_CHECKING:
    from serving.store.store import Store

_FILES = "/v3/translation_memories/files"


class _MemoryEndpoints:
    """Endpoints under /v3/translation_memories."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._settings = backend, backend.settings
        self._limits = memory_limits(backend.settings)

    async def list_page(self, request: Request, context: RequestContext) -> Response:
        """List the memories of the key, page by page."""
        asked = await read_fields(request, DeepLMemoriesPage, self._settings.max_body_bytes)
        found: list[StoredMemory] = []
        if self._backend.store is not None:
            found = await run_in_threadpool(self._store.memories.page, context.key)
        begin = asked.page * asked.page_size
        page = [memory_info(each) for each in found[begin : begin + asked.page_size]]
        return json_response(DeepLMemories(translation_memories=page, total_count=len(found)))

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Describe a memory."""
        return json_response(memory_info(await self._one(request, context)))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Delete a memory."""
        await run_in_threadpool(self._store.memories.delete, context.key, _id(request))
        return Response(status_code=204)

    async def segments(self, request: Request, context: RequestContext) -> Response:
        """List the segments of a memory, page by page."""
        asked = await read_fields(request, DeepLSegmentsPage, self._settings.max_body_bytes)
        memory = await self._one(request, context)
        found = await run_in_threadpool(
            self._store.memories.segments,
            context.key,
            memory.id,
            -1 if asked.page_cursor is None else int(asked.page_cursor),
            asked.page_size + 1,
            asked.filter_text or "",
            match_case=asked.filter_case_sensitive,
        )
        ends = len(found) <= asked.page_size
        answer = segments_page(memory, found[: asked.page_size], ends=ends)
        return json_response(answer, exclude_none=True)

    async def begin_import(self, request: Request, context: RequestContext) -> Response:
        """Start an import; answers with the address for the upload."""
        store = self._store
        body = await read_json(request, DeepLImportRequest, self._settings.max_body_bytes)
        length, most = body.source_file.content_length, self._settings.max_memory_bytes
        if length > most:
            raise TooLongError(
                f"source_file.content_length must be at most {most} "
                f"({variable('max_memory_bytes')}), got {length}; divide the file",
                parameter="source_file.content_length",
            )
        name = checked_name(body.parameters.display_name or body.source_file.file_name)
        job = await run_in_threadpool(store.memory_jobs.create, context.key, name, length)
        answer = DeepLImport(
            job_id=job.id,
            upload_url=self._url(request, job),
            expires_at=iso_time(job.created + VALID_S),
        )
        return json_response(answer, status=202)

    async def upload(self, request: Request, _: RequestContext) -> Response:
        """Accept the file of an import; it is read after the answer."""
        store = self._store
        owner, job = await self._job_of_address(request)
        file = await read_file(request, self._settings.max_memory_bytes, "max_memory_bytes")
        if job.state != "waiting" or not await run_in_threadpool(store.memory_jobs.claimed, job):
            file.close()  # a client that has not seen the answer sends it again
            return Response()
        registry, limits = self._backend.registry, self._limits
        reading = BackgroundTask(
            on_threads_for, READERS, lambda: read_job(store, registry, owner, job, file, limits)
        )
        return Response(background=reading)

    async def begin_export(self, request: Request, context: RequestContext) -> Response:
        """Start an export; its job has the address for the download."""
        memory = await self._one(request, context)
        job = await run_in_threadpool(
            self._store.memory_jobs.create, context.key, memory_id=memory.id
        )
        parameters = DeepLExportParameters(translation_memory_id=memory.id)
        return json_response(DeepLExport(job_id=job.id, parameters=parameters), status=202)

    async def download(self, request: Request, _: RequestContext) -> Response:
        """Return the file of an export."""
        owner, job = await self._job_of_address(request)
        kept = self._store.memories
        if job.memory_id is None:
            raise _no_address()
        memory = await run_in_threadpool(kept.get, owner, job.memory_id)
        return StreamingResponse(memory_file(kept, owner, memory), media_type=TMX)

    async def job(self, request: Request, context: RequestContext) -> Response:
        """Report the state of an import or export."""
        job = await run_in_threadpool(
            self._store.memory_jobs.get, context.key, request.path_params["job_id"]
        )
        return json_response(job_info(job, self._url(request, job)), exclude_none=True)

    @property
    def _store(self) -> Store:
        return self._backend.needed_store("memories")

    async def _one(self, request: Request, context: RequestContext) -> StoredMemory:
        return await run_in_threadpool(self._store.memories.get, context.key, _id(request))

    async def _job_of_address(self, request: Request) -> tuple[str, MemoryJob]:
        token = request.path_params["token"]
        owner, job = await run_in_threadpool(self._store.memory_jobs.of_token, token)
        if is_late(job):
            raise _no_address()
        return owner, job

    def _url(self, request: Request, job: MemoryJob) -> str:
        return own_address(request, self._settings.root_path, f"{_FILES}/{job.token}")


def _id(request: Request) -> str:
    found: str = request.path_params["id"]
    return found


def _no_address() -> UnknownMemoryError:
    return UnknownMemoryError("this address is no longer valid; begin another job")


_LOOK = (400, 403, 404, 429, 501, 503)
_CHANGE = (*(STATUSES.get(status, status) for status in QUICK), 501)
_ALL, _ONE = "/v3/translation_memories", "/v3/translation_memories/{id}"

DEEPL_MEMORIES = Dialect(
    endpoints=_MemoryEndpoints,
    routes=(
        DialectRoute(
            _ALL,
            _MemoryEndpoints.list_page,
            "deepl_memories",
            "Translation memories",
            DeepLMemories,
            query={"page": (), "page_size": ()},
            errors=(400, 403, 429, 503),
        ),
        DialectRoute(
            _ALL + "/import",
            _MemoryEndpoints.begin_import,
            "deepl_memory_import",
            "Begin to import a TMX file as a translation memory",
            DeepLImport,
            methods=("POST",),
            status=202,
            request=DeepLImportRequest,
            errors=_CHANGE,
        ),
        DialectRoute(
            _FILES + "/{token}",
            _MemoryEndpoints.upload,
            "deepl_memory_upload",
            "Send the file of an import, as the body",
            NoneType,
            methods=("PUT",),
            errors=(404, 408, 413, 501, 503),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            _FILES + "/{token}",
            _MemoryEndpoints.download,
            "deepl_memory_download",
            "The TMX file of an export",
            bytes,
            errors=(404, 501, 503),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            _ALL + "/jobs/{job_id}",
            _MemoryEndpoints.job,
            "deepl_memory_job",
            "The state of an import or an export",
            DeepLMemoryJob,
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE,
            _MemoryEndpoints.get,
            "deepl_memory",
            "The record of a translation memory",
            DeepLMemory,
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE,
            _MemoryEndpoints.delete,
            "deepl_memory_delete",
            "Delete a translation memory",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE + "/segments",
            _MemoryEndpoints.segments,
            "deepl_memory_segments",
            "Segments of a translation memory",
            DeepLSegments,
            query={
                "page_size": (),
                "page_cursor": (),
                "filter_text": (),
                "filter_case_sensitive": ("true", "false"),
            },
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE + "/export",
            _MemoryEndpoints.begin_export,
            "deepl_memory_export",
            "Begin to export a translation memory as a TMX file",
            DeepLExport,
            methods=("POST",),
            status=202,
            errors=_LOOK,
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "An API key is missing or unknown; only if the server has keys",
        404: "There is no translation memory, job or address with that id",
        413: "The name or the file is over a limit of `/limits`",
        501: "The server has no store",
        503: "The server is starting or shutting down, or the store does not answer",
    },
    key_schemes=("deepl-auth-key",),
)
"""The translation memories of DeepL's API, version 3."""
