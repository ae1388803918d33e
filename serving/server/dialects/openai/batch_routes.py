"""Files and batches in OpenAI's dialect: requests in a file, answered in the background."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from serving.errors import InvalidOptionError, RequestError
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.openai.answers import render_error
from serving.server.dialects.openai.batch_wire import (
    BatchCounts,
    BatchFaultBody,
    BatchFaults,
    BatchRequest,
    DeletedFile,
    FilePurpose,
    OpenAIBatch,
    OpenAIBatches,
    OpenAIFile,
    OpenAIFiles,
)
from serving.server.dialects.openai.wire import OpenAIError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.upload import Upload, read_upload
from serving.server.http.wire import json_response
from serving.server.work.backend import Backend
from serving.server.work.batches.desk import PURPOSE
from serving.server.work.batches.records import STATUSES, BatchWishes, result_of, wishes_of
from serving.server.work.batches.webhooks import Webhook, check_webhook
from serving.server.work.threads import on_threads_for
from serving.store.records.job import KeptFile, KeptJob
from serving.text.characters import check_text

_BLOCK = 2**16
_MOST_FILES = 10_000
_MOST_BATCHES = 100
_FEW_BATCHES = 20
_LONGEST_NAME, _LONGEST_VALUE = 64, 512
_SECONDS = "expires_after[seconds]"
_LEAST_S, _MOST_S = 3600, 2_592_000


class _BatchEndpoints:
    """Endpoints under /v1/files and /v1/batches."""

    def __init__(self, backend: Backend) -> None:
        self._batches, self._settings = backend.batches, backend.settings

    async def upload(self, request: Request, context: RequestContext) -> Response:
        """Accept a file."""
        limit = self._settings.max_file_bytes
        upload = await read_upload(request, limit, noun="file", setting="max_file_bytes")
        with contextlib.closing(upload.file):
            purpose = upload.fields.get("purpose")
            if purpose != PURPOSE:
                raise InvalidOptionError(
                    f"purpose must be {PURPOSE!r}, got {purpose!r}: files are for batches here",
                    parameter="purpose",
                )
            file = await self._batches.upload(upload, _seconds(upload), context)
        return json_response(_file(file))

    async def files(self, request: Request, context: RequestContext) -> Response:
        """List files, the newest first unless `order` says otherwise."""
        query = request.query_params
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise _not_allowed("order", "'asc' or 'desc'", order)
        most = _limit(request, _MOST_FILES, _MOST_FILES)
        purpose, after = query.get("purpose"), query.get("after")
        found = await self._batches.files(purpose, after, most + 1, context, newest=order == "desc")
        data = [_file(file) for file in found[:most]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        more = len(found) > most
        return json_response(OpenAIFiles(data=data, first_id=first, last_id=last, has_more=more))

    async def file(self, request: Request, context: RequestContext) -> Response:
        """Describe a file."""
        return json_response(_file(await self._file(request, context)))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Delete a file; a batch that has not started to read it fails."""
        id = request.path_params["id"]
        await self._batches.delete(id, context)
        return json_response(DeletedFile(id=id))

    async def content(self, request: Request, context: RequestContext) -> Response:
        """Return the content of a file."""
        file = await self._file(request, context)
        content, type = await self._batches.content(file), "application/octet-stream"
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name)}",
            "X-Content-Type-Options": "nosniff",
        }
        if isinstance(content, Path):
            return FileResponse(content, media_type=type, headers=headers)
        headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
        return StreamingResponse(_blocks(content), media_type=type, headers=headers)

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Create a batch that answers the lines of a file."""
        body = await read_json(request, BatchRequest, self._settings.max_body_bytes)
        _check_metadata(body.metadata or {})
        check_text(body.input_file_id, "input_file_id")
        kept = body.output_expires_after
        wishes = BatchWishes(
            endpoint=body.endpoint,
            input_file=body.input_file_id,
            metadata=body.metadata,
            output_s=None if kept is None else float(kept.seconds),
            client=context.client,
            webhook=await self._webhook(body),
        )
        return json_response(_batch(await self._batches.create(wishes, context)))

    async def batches(self, request: Request, context: RequestContext) -> Response:
        """List batches, the newest first."""
        most = _limit(request, _FEW_BATCHES, _MOST_BATCHES)
        found = await self._batches.batches(request.query_params.get("after"), most + 1, context)
        data = [_batch(job) for job in found[:most]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        more = len(found) > most
        return json_response(OpenAIBatches(data=data, first_id=first, last_id=last, has_more=more))

    async def batch(self, request: Request, context: RequestContext) -> Response:
        """Report the progress of a batch."""
        return json_response(_batch(await self._batches.batch(request.path_params["id"], context)))

    async def cancel(self, request: Request, context: RequestContext) -> Response:
        """Cancel a batch; existing answers stay."""
        return json_response(_batch(await self._batches.cancel(request.path_params["id"], context)))

    async def _webhook(self, body: BatchRequest) -> Webhook | None:
        if body.webhook is None:
            return None
        check_text(body.webhook.secret, "webhook")
        webhook = Webhook(body.webhook.url, body.webhook.secret)
        # The name server of a webhook's host may be slow.
        await on_threads_for("webhooks", lambda: check_webhook(webhook, self._settings))
        return webhook

    async def _file(self, request: Request, context: RequestContext) -> KeptFile:
        return await self._batches.file(request.path_params["id"], context)


def _file(file: KeptFile) -> OpenAIFile:
    return OpenAIFile(
        id=file.id,
        bytes=file.size,
        created_at=int(file.created),
        expires_at=int(file.expires),
        filename=file.name,
        purpose=cast(FilePurpose, file.purpose),
    )


def _batch(job: KeptJob) -> OpenAIBatch:
    wishes, result = wishes_of(job), result_of(job)
    status = STATUSES[job.state]
    if job.cancelling is not None and job.ended is None:
        status = "cancelling"
    ended = None if job.ended is None else int(job.ended)
    faults = [
        BatchFaultBody(code=fault.code, message=fault.message, line=fault.line, param=fault.param)
        for fault in result.faults
    ]
    return OpenAIBatch(
        id=job.id,
        endpoint=wishes.endpoint,
        errors=BatchFaults(data=faults) if faults else None,
        input_file_id=wishes.input_file,
        status=status,
        output_file_id=result.output_file,
        error_file_id=result.error_file,
        created_at=int(job.created),
        in_progress_at=None if job.started is None else int(job.started),
        expires_at=int(job.deadline),
        finalizing_at=ended if job.state == "done" else None,
        completed_at=ended if job.state == "done" else None,
        failed_at=ended if job.state == "failed" else None,
        expired_at=ended if job.state == "expired" else None,
        cancelling_at=None if job.cancelling is None else int(job.cancelling),
        cancelled_at=ended if job.state == "cancelled" else None,
        request_counts=BatchCounts(total=job.total, completed=job.done, failed=job.failed),
        metadata=None if wishes.metadata is None else dict(wishes.metadata),
    )


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file, and close it at the end."""
    with file:
        while block := file.read(_BLOCK):
            yield block


def _seconds(upload: Upload) -> float | None:
    """Seconds for which a file is kept, if its form sets them."""
    given = upload.fields.get(_SECONDS)
    if given is None:
        return None
    text = str(given)
    if not (text.isdecimal() and len(text) < 10 and _LEAST_S <= int(text) <= _MOST_S):
        raise _not_allowed(_SECONDS, f"a number from {_LEAST_S} to {_MOST_S}", text)
    return float(text)


def _limit(request: Request, usual: int, most: int) -> int:
    given = request.query_params.get("limit")
    if given is None:
        return usual
    if not (given.isdecimal() and len(given) < 10 and 1 <= int(given) <= most):
        raise _not_allowed("limit", f"a number from 1 to {most}", given)
    return int(given)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    for name, value in metadata.items():
        check_text(name, "metadata")
        check_text(value, "metadata")
        if len(name) > _LONGEST_NAME or len(value) > _LONGEST_VALUE:
            raise RequestError(
                f"metadata must have names of at most {_LONGEST_NAME} characters and values of at "
                f"most {_LONGEST_VALUE}, got {len(name)} and {len(value)}",
                parameter="metadata",
            )


def _not_allowed(parameter: str, allowed: str, given: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{parameter} must be {allowed}, got {given[:40]!r}", parameter=parameter
    )


_READ = (400, 401, 404, 429, 501, 503)

OPENAI_BATCHES = Dialect(
    endpoints=_BatchEndpoints,
    routes=(
        DialectRoute(
            "/v1/files",
            _BatchEndpoints.upload,
            "upload_file",
            "Upload a file of requests for a batch, one per line",
            OpenAIFile,
            methods=("POST",),
            upload=("purpose", "expires_after[anchor]", _SECONDS),
            errors=(*QUICK, 501),
        ),
        DialectRoute(
            "/v1/files",
            _BatchEndpoints.files,
            "files",
            "Uploaded files, and results",
            OpenAIFiles,
            query={"purpose": (), "after": (), "limit": (), "order": ("asc", "desc")},
            errors=(400, 401, 429, 503),
        ),
        DialectRoute(
            "/v1/files/{id}",
            _BatchEndpoints.file,
            "file",
            "The record of a file",
            OpenAIFile,
            errors=_READ,
        ),
        DialectRoute(
            "/v1/files/{id}",
            _BatchEndpoints.delete,
            "delete_file",
            "Delete a file",
            DeletedFile,
            methods=("DELETE",),
            errors=_READ,
        ),
        DialectRoute(
            "/v1/files/{id}/content",
            _BatchEndpoints.content,
            "file_content",
            "The content of a file",
            bytes,
            errors=_READ,
        ),
        DialectRoute(
            "/v1/batches",
            _BatchEndpoints.create,
            "create_batch",
            "Answer the requests of a file within 24 hours, in the background",
            OpenAIBatch,
            methods=("POST",),
            request=BatchRequest,
            errors=(*QUICK, 501),
        ),
        DialectRoute(
            "/v1/batches",
            _BatchEndpoints.batches,
            "batches",
            "Batches, the newest first",
            OpenAIBatches,
            query={"after": (), "limit": ()},
            errors=(400, 401, 429, 503),
        ),
        DialectRoute(
            "/v1/batches/{id}",
            _BatchEndpoints.batch,
            "batch",
            "The progress of a batch",
            OpenAIBatch,
            errors=_READ,
        ),
        DialectRoute(
            "/v1/batches/{id}/cancel",
            _BatchEndpoints.cancel,
            "cancel_batch",
            "Cancel a batch; existing answers stay",
            OpenAIBatch,
            methods=("POST",),
            errors=_READ,
        ),
    ),
    error=OpenAIError,
    render_error=render_error,
    reasons={404: "There is no such file or batch, or it belongs to another key"},
)
"""The part of OpenAI's API for files and batches."""
