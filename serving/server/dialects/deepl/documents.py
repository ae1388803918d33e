"""Documents in DeepL's dialect: upload, state, and a single download."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError, UnauthorizedError, UnknownLanguageError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.deepl.answers import STATUSES, language_code, render_error
from serving.server.dialects.deepl.wire import DeepLError, DeepLRequest
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.upload import read_upload
from serving.server.http.wire import Wire, json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.documents.desk import DocumentWishes
from serving.server.work.documents.shelf import DocumentRecord
from serving.server.work.stored.memories import percentage
from serving.server.work.stored.wishes import StoredWishes

_REFUSED = ("style_id", "custom_instructions")
_NAMES = {
    "source": "source_lang",
    "target": "target_lang",
    "memory_id": "translation_memory_id",
    "memory_threshold": "translation_memory_threshold",
}
"""Parameters that have another name in the form."""
_STATES: dict[str, Literal["queued", "translating", "done", "error"]] = {
    "queued": "queued",
    "translating": "translating",
    "done": "done",
    "failed": "error",
}


class DeepLDocumentHandle(Wire):
    """The id and the key of an uploaded document."""

    document_id: str
    document_key: str
    """A secret that is needed for the document. The server stores only its digest."""


class DeepLDocumentRequest(DeepLRequest):
    """Selects a document."""

    document_key: str = ""


class DeepLDocumentStatus(Wire):
    """The state of a document."""

    document_id: str
    status: Literal["queued", "translating", "done", "error"]
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


class _DeepLDocumentEndpoints:
    """Endpoints under /v2/document."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._documents = backend, backend.documents

    async def upload(self, request: Request, context: RequestContext) -> Response:
        """Accept a document."""
        settings = self._backend.settings
        upload = await read_upload(request, settings.max_document_bytes)
        with contextlib.closing(upload.file):
            fields = {name: str(value) for name, value in upload.fields.items()}
            await self._admit(context, fields.get("auth_key"))
            secret = secrets.token_hex(32)
            wishes = self._wishes(fields, secret)
            if fields.get("filename"):
                upload = type(upload)(fields["filename"], upload.file, upload.fields)
            try:
                record = await self._documents.submit(upload, wishes, context)
            except RequestError as error:
                raise error.renamed(_NAMES) from error
        return json_response(DeepLDocumentHandle(document_id=record.id, document_key=secret))

    async def status(self, request: Request, context: RequestContext) -> Response:
        """Report the progress of a document."""
        return json_response(_status(await self._found(request, context)), exclude_none=True)

    async def result(self, request: Request, context: RequestContext) -> Response:
        """Return the translated file, once."""
        return await self._documents.take(await self._found(request, context))

    async def _found(self, request: Request, context: RequestContext) -> DocumentRecord:
        limit = self._backend.settings.max_body_bytes
        body = await read_fields(request, DeepLDocumentRequest, limit)
        await self._admit(context, body.auth_key or request.query_params.get("auth_key"))
        id = request.path_params["id"]
        return await self._documents.find(id, context.key, body.document_key)

    async def _admit(self, context: RequestContext, key: str | None) -> None:
        try:
            await self._backend.gatekeeper.admit(context, key or None)
        except UnauthorizedError as error:
            error.parameter = "auth_key" if key else None
            raise

    def _wishes(self, fields: dict[str, str], secret: str) -> DocumentWishes:
        """The parameters of a form; raises RequestError for a field that this server does not
        support."""
        for field in _REFUSED:
            if fields.get(field):
                raise RequestError(
                    f"'{field}' is not supported for documents on this server; leave it out",
                    parameter=field,
                )
        if fields.get("formality") in ("more", "less"):
            raise RequestError(
                "'formality' is not supported for given 'target_lang', got "
                f"{fields['formality']!r}; leave it out or send 'prefer_{fields['formality']}'",
                parameter="formality",
            )
        if not fields.get("target_lang"):
            raise RequestError("'target_lang' is missing", parameter="target_lang")
        registry, source = self._backend.registry, AUTO
        target = language_code("target_lang", fields["target_lang"], registry.target_languages)
        if fields.get("source_lang"):
            source = language_code("source_lang", fields["source_lang"], registry.source_languages)
            if target not in (source, *registry.targets(source)):
                raise UnknownLanguageError(
                    f"no model translates from {source} to {target}", parameter="target_lang"
                )
        named = [fields.get("glossary_id", ""), *fields.get("glossary_ids", "").split(",")]
        glossaries = tuple(id.strip() for id in named if id.strip())
        return DocumentWishes(
            source=source,
            target=target,
            output_format=fields.get("output_format", ""),
            stored=StoredWishes(
                glossaries=glossaries,
                memory=fields.get("translation_memory_id", ""),
                threshold=percentage(fields, "translation_memory_threshold"),
            ),
            secret=secret,
        )


def _status(record: DocumentRecord) -> DeepLDocumentStatus:
    left = None
    if record.state == "translating" and record.done and record.started:
        spent = time.time() - record.started
        left = math.ceil(spent / record.done * (record.total - record.done))
    elif record.state in ("queued", "translating"):
        left = 1
    return DeepLDocumentStatus(
        document_id=record.id,
        status=_STATES[record.state],
        seconds_remaining=left,
        billed_characters=record.characters if record.state == "done" else None,
        error_message=record.error or None,
    )


_QUICK = tuple(STATUSES.get(status, status) for status in QUICK)
_KEY = KeyRule.HEAD_OR_BODY

DEEPL_DOCUMENTS = Dialect(
    endpoints=_DeepLDocumentEndpoints,
    routes=(
        DialectRoute(
            "/v2/document",
            _DeepLDocumentEndpoints.upload,
            "deepl_upload_document",
            "Translate a document, as DeepL does",
            DeepLDocumentHandle,
            methods=("POST",),
            upload=(
                *("target_lang", "source_lang", "filename", "formality"),
                *("output_format", "glossary_id", "glossary_ids", "translation_memory_id"),
                *("translation_memory_threshold", "auth_key"),
            ),
            errors=(*_QUICK, 501),
            key=_KEY,
        ),
        DialectRoute(
            "/v2/document/{id}",
            _DeepLDocumentEndpoints.status,
            "deepl_document_status",
            "The progress of a document",
            DeepLDocumentStatus,
            methods=("POST",),
            request=DeepLDocumentRequest,
            form=("document_key", "auth_key"),
            errors=_QUICK,
            key=_KEY,
        ),
        DialectRoute(
            "/v2/document/{id}/result",
            _DeepLDocumentEndpoints.result,
            "deepl_document_result",
            "The translated file, once",
            bytes,
            methods=("POST",),
            request=DeepLDocumentRequest,
            form=("document_key", "auth_key"),
            errors=_QUICK,
            key=_KEY,
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "An API key is missing or unknown; only if the server has keys",
        404: "There is no such document, it was fetched already, or its key is wrong",
    },
    key_schemes=("deepl-auth-key",),
)
"""The part of DeepL's API that translates documents."""
