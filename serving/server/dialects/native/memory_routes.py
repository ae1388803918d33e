"""Translation memories in the native dialect."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.native.memory_wire import (
    MemoryFileRead,
    MemoryInfo,
    MemoryList,
    MemoryPage,
    MemorySegment,
    MemorySegments,
    NewMemory,
    NumberedSegment,
    SegmentList,
    SegmentPage,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields, read_json
from serving.server.http.upload import read_upload
from serving.server.http.wire import json_response
from serving.server.work.backend import Backend
from serving.server.work.stored.memories import (
    READERS,
    TMX,
    add_file,
    forgotten_on_error,
    memory_file,
    memory_limits,
    memory_pair,
)
from serving.server.work.threads import on_threads_for
from serving.store.records.memory import StoredMemory, checked_segments
from serving.store.records.name import checked_name
from serving.text.memory.segments import Segment

if TYPE_CHECKING:
    from serving.store.memories import Memories


class _MemoryEndpoints:
    """Endpoints under /memories."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._settings = backend, backend.settings
        self._limits = memory_limits(backend.settings)

    async def list_page(self, request: Request, context: RequestContext) -> Response:
        """List the memories of the key, page by page."""
        asked = await read_fields(request, MemoryPage, self._settings.max_body_bytes)
        if self._backend.store is None:
            return json_response(MemoryList(memories=[]), exclude_none=True)
        found = await run_in_threadpool(self._kept.page, context.key, asked.after, asked.limit + 1)
        page = found[: asked.limit]
        following = page[-1].id if len(found) > len(page) else None
        answer = MemoryList(memories=[_info(each) for each in page], next=following)
        return json_response(answer, exclude_none=True)

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Create a memory."""
        kept = self._kept
        body = await read_json(request, NewMemory, self._settings.max_body_bytes)
        pair = memory_pair(self._backend.registry, body.source, body.target)
        name, segments = checked_name(body.name), self._checked(body.segments)

        def make() -> StoredMemory:
            made = kept.create(context.key, name, *pair, self._limits)
            with forgotten_on_error(kept, context.key, made):
                return kept.add(context.key, made.id, segments, self._limits)

        return json_response(_info(await run_in_threadpool(make)), status=201)

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Describe a memory."""
        return json_response(_info(await self._one(request, context)))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Delete a memory."""
        await run_in_threadpool(self._kept.delete, context.key, _id(request))
        return Response(status_code=204)

    async def segments(self, request: Request, context: RequestContext) -> Response:
        """List the segments of a memory, page by page."""
        asked = await read_fields(request, SegmentPage, self._settings.max_body_bytes)
        found = await run_in_threadpool(
            self._kept.segments,
            context.key,
            _id(request),
            asked.after,
            asked.limit + 1,
            asked.text,
        )
        page = found[: asked.limit]
        answer = SegmentList(
            segments=[
                NumberedSegment(number=each.number, source=each.source, target=each.target)
                for each in page
            ],
            next=page[-1].number if len(found) > len(page) else None,
        )
        return json_response(answer, exclude_none=True)

    async def add(self, request: Request, context: RequestContext) -> Response:
        """Add segments to a memory."""
        kept = self._kept
        body = await read_json(request, MemorySegments, self._settings.max_body_bytes)
        segments = self._checked(body.segments)
        return json_response(
            _info(
                await run_in_threadpool(kept.add, context.key, _id(request), segments, self._limits)
            )
        )

    async def read_file(self, request: Request, context: RequestContext) -> Response:
        """Add the segments of a TMX file to a memory."""
        memory = await self._one(request, context)
        most = self._settings.max_memory_bytes
        upload = await read_upload(request, most, noun="file", setting="max_memory_bytes")
        with contextlib.closing(upload.file):
            kept = self._kept
            read = await on_threads_for(
                READERS,
                lambda: add_file(kept, context.key, memory, upload.file, self._limits),
            )
        return json_response(
            MemoryFileRead(memory=_info(read.memory), added=read.added, skipped=read.skipped)
        )

    async def write_file(self, request: Request, context: RequestContext) -> Response:
        """Return a memory as a TMX file."""
        memory = await self._one(request, context)
        parts = memory_file(self._kept, context.key, memory)
        headers = {"Content-Disposition": f'attachment; filename="{memory.id}.tmx"'}
        return StreamingResponse(parts, media_type=TMX, headers=headers)

    @property
    def _kept(self) -> Memories:
        return self._backend.needed_store("memories").memories

    async def _one(self, request: Request, context: RequestContext) -> StoredMemory:
        return await run_in_threadpool(self._kept.get, context.key, _id(request))

    def _checked(self, given: Sequence[MemorySegment]) -> list[Segment]:
        segments = (Segment(each.source, each.target) for each in given)
        return list(checked_segments(segments, self._limits))


def _id(request: Request) -> str:
    found: str = request.path_params["id"]
    return found


def _info(found: StoredMemory) -> MemoryInfo:
    return MemoryInfo(
        id=found.id,
        name=found.name,
        source=found.source,
        target=found.target,
        created=found.created,
        updated=found.updated,
        segment_count=found.segment_count,
    )


_LOOK = (400, 401, 404, 429, 501, 503)
_CHANGE = (*QUICK, 501)

NATIVE_MEMORIES = Dialect(
    endpoints=_MemoryEndpoints,
    routes=(
        DialectRoute(
            "/memories",
            _MemoryEndpoints.list_page,
            "memories",
            "Translation memories of the key, the oldest first",
            MemoryList,
            query={"after": (), "limit": ()},
            errors=_LOOK,
        ),
        DialectRoute(
            "/memories",
            _MemoryEndpoints.create,
            "memory_create",
            "Create a translation memory",
            MemoryInfo,
            methods=("POST",),
            status=201,
            request=NewMemory,
            errors=_CHANGE,
        ),
        DialectRoute(
            "/memories/{id}",
            _MemoryEndpoints.get,
            "memory",
            "The record of a translation memory",
            MemoryInfo,
            errors=_LOOK,
        ),
        DialectRoute(
            "/memories/{id}",
            _MemoryEndpoints.delete,
            "memory_delete",
            "Delete a translation memory",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            "/memories/{id}/segments",
            _MemoryEndpoints.segments,
            "memory_segments",
            "Segments of a translation memory",
            SegmentList,
            query={"after": (), "limit": (), "text": ()},
            errors=_LOOK,
        ),
        DialectRoute(
            "/memories/{id}/segments",
            _MemoryEndpoints.add,
            "memory_segments_post",
            "Add segments to a translation memory",
            MemoryInfo,
            methods=("POST",),
            request=MemorySegments,
            errors=_CHANGE,
        ),
        DialectRoute(
            "/memories/{id}/tmx",
            _MemoryEndpoints.read_file,
            "memory_tmx_post",
            "Add the segments of a TMX file to a translation memory",
            MemoryFileRead,
            methods=("POST",),
            upload=(),
            errors=_CHANGE,
        ),
        DialectRoute(
            "/memories/{id}/tmx",
            _MemoryEndpoints.write_file,
            "memory_tmx",
            "A translation memory as a TMX file",
            bytes,
            errors=_LOOK,
        ),
    ),
    reasons={
        404: "There is no translation memory with that id",
        413: "A segment, the name, the file or the body is over a limit of `/limits`",
        429: "The key has the largest number of memories or segments, or sends too many requests",
        501: "The server has no store",
        503: "The server is starting or shutting down, or the store does not answer",
    },
)
"""The translation memories of this project's own API."""
