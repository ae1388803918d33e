"""Documents in the native dialect: upload, progress, download, deletion."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from serving.documents.tables.columns import named_columns
from serving.errors import RequestError
from serving.server.access.gate import KeyRule, admit_by_body
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.native.document_wire import DocumentState
from serving.server.http.access_log import RequestContext
from serving.server.http.upload import read_upload
from serving.server.http.wire import STREAM_HEADERS, json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.documents.desk import DocumentWishes, file_response, output_name
from serving.server.work.documents.shelf import DocumentRecord, Picture
from serving.server.work.stored.memories import percentage
from serving.server.work.stored.wishes import StoredWishes

_TRUE = ("true", "1", "on", "yes")


class _DocumentEndpoints:
    """Endpoints for documents."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def submit(self, request: Request, context: RequestContext) -> Response:
        """Accept a document; it is translated in the background."""
        upload = await read_upload(request, self._backend.settings.max_document_bytes)
        with contextlib.closing(upload.file):
            fields = {name: str(value) for name, value in upload.fields.items()}
            await admit_by_body(self._backend.gatekeeper, context, fields.get("api_key"))
            if not fields.get("target"):
                raise RequestError("target is missing", parameter="target")
            wishes = DocumentWishes(
                source=fields.get("source") or AUTO,
                target=fields["target"],
                model=fields.get("model") or None,
                stored=StoredWishes(
                    glossaries=tuple(filter(None, [fields.get("glossary_id")])),
                    memory=fields.get("memory_id", ""),
                    threshold=percentage(fields, "memory_threshold"),
                    as_prefix=_as_prefix(fields),
                ),
                bilingual=fields.get("bilingual", "").lower() in _TRUE,
                retranslate=fields.get("retranslate", "").lower() in _TRUE,
                columns=named_columns(fields.get("columns", "")),
                output_format=fields.get("output_format", ""),
            )
            record = await self._backend.documents.submit(upload, wishes, context)
        return json_response(self._state(record))

    async def state(self, request: Request, context: RequestContext) -> Response:
        """Describe a document, or delete it."""
        record = await self._found(request, context)
        if request.method == "DELETE":
            await self._backend.documents.remove(record)
        return json_response(self._state(record))

    async def events(self, request: Request, context: RequestContext) -> Response:
        """Report the progress of a document, as server-sent events."""
        record = await self._found(request, context)
        changes = self._backend.documents.changes(record)

        async def sent() -> AsyncIterator[bytes]:
            with contextlib.suppress(RequestError):  # deleted: the stream ends
                async for each in changes:
                    yield _event("end" if each.ready else "progress", self._state(each))

        return StreamingResponse(sent(), media_type="text/event-stream", headers=STREAM_HEADERS)

    async def result(self, request: Request, context: RequestContext) -> Response:
        """Return the translated file; raises NotReadyError before it exists."""
        record = await self._found(request, context)
        return file_response(self._backend.documents, record)

    async def picture(self, request: Request, context: RequestContext) -> Response:
        """Return the picture of the first page as PNG; raises RequestError if there is none."""
        record = await self._found(request, context)
        which: Picture = "after" if request.url.path.endswith("/after") else "before"
        return FileResponse(
            await self._backend.documents.picture(record, which), media_type="image/png"
        )

    def _state(self, record: DocumentRecord) -> DocumentState:
        return _state_of(record, pictures=self._backend.documents.has_pictures(record))

    async def _found(self, request: Request, context: RequestContext) -> DocumentRecord:
        return await self._backend.documents.find(request.path_params["id"], context.key)


def _as_prefix(fields: Mapping[str, str]) -> bool:
    """Whether similar memory segments give the beginning of a translation; raises RequestError for
    a value other than `given` and `prefix`."""
    given = fields.get("memory_fuzzy") or "given"
    if given not in ("given", "prefix"):
        raise RequestError(
            f"memory_fuzzy must be given or prefix, got {given[:50]!r}", parameter="memory_fuzzy"
        )
    return given == "prefix"


def _state_of(record: DocumentRecord, *, pictures: bool) -> DocumentState:
    """The public state of a document."""
    began = record.started or record.created
    seconds = max(0.0, (record.ended or time.time()) - began) if record.started else 0.0
    left = None
    if record.state == "translating" and record.done:
        left = round(seconds / record.done * (record.total - record.done), 1)
    return DocumentState(
        id=record.id,
        name=record.name,
        output_name=output_name(record),
        format=record.format,
        source=record.source,
        target=record.target,
        state=record.state,
        done=record.done,
        total=record.total,
        characters=record.characters,
        seconds=round(seconds, 2),
        seconds_left=left,
        warnings=list(record.warnings),
        error=record.error,
        pictures=pictures,
    )


def _event(name: str, data: BaseModel) -> bytes:
    return f"event: {name}\ndata: {data.model_dump_json()}\n\n".encode()


_ERRORS = (401, 404, 429)

DOCUMENTS = Dialect(
    endpoints=_DocumentEndpoints,
    routes=(
        DialectRoute(
            "/documents",
            _DocumentEndpoints.submit,
            "submit_document",
            "Translate a document: a multipart form with `file`, `target` and optionally "
            "`source`, `model`, `glossary_id`, `memory_id`, `memory_threshold`, `memory_fuzzy`, "
            "`bilingual`, `retranslate`, `columns` and `output_format`",
            DocumentState,
            methods=("POST",),
            upload=(
                *("target", "source", "model", "glossary_id"),
                *("bilingual", "retranslate", "columns", "output_format"),
                *("memory_id", "memory_threshold", "memory_fuzzy", "api_key"),
            ),
            errors=(*QUICK, 403, 501),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/documents/{id}",
            _DocumentEndpoints.state,
            "document",
            "The state of a document; DELETE removes it and its result",
            DocumentState,
            methods=("GET", "DELETE"),
            errors=_ERRORS,
        ),
        DialectRoute(
            "/documents/{id}/events",
            _DocumentEndpoints.events,
            "document_events",
            "The progress of a document, until its end",
            str,
            errors=_ERRORS,
        ),
        DialectRoute(
            "/documents/{id}/result",
            _DocumentEndpoints.result,
            "document_result",
            "The translated file",
            bytes,
            errors=(400, *_ERRORS, 503),
        ),
        *(
            DialectRoute(
                f"/documents/{{id}}/pictures/{which}",
                _DocumentEndpoints.picture,
                f"document_picture_{which}",
                f"A picture of the first page {which} the translation, as PNG, if the server "
                "has LibreOffice",
                bytes,
                errors=(400, *_ERRORS, 503),
            )
            for which in ("before", "after")
        ),
    ),
)
"""Documents, as part of this project's own API."""
