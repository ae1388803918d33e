"""Files in LibreTranslate's dialect: one request uploads a file, another downloads the result."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import CancelledError, DeadlineExceededError, RequestError
from serving.server.access.gate import KeyRule, admit_by_body
from serving.server.api.dialect import WORK, Dialect, DialectRoute
from serving.server.dialects.libretranslate.wire import TranslatedFile
from serving.server.http.access_log import RequestContext
from serving.server.http.upload import read_upload
from serving.server.http.wire import json_response, own_address
from serving.server.work.backend import Backend
from serving.server.work.documents.desk import DocumentWishes, file_response, output_name
from serving.server.work.documents.shelf import DocumentRecord


class _FileEndpoints:
    """Endpoints for files."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._documents = backend, backend.documents

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate a file; the answer has the URL of the translation."""
        settings = self._backend.settings
        upload = await read_upload(request, settings.max_document_bytes)
        with contextlib.closing(upload.file):
            fields = {name: str(value) for name, value in upload.fields.items()}
            await admit_by_body(self._backend.gatekeeper, context, fields.get("api_key"))
            for name in ("source", "target"):
                if not fields.get(name):
                    raise RequestError(f"Invalid request: missing {name} parameter", parameter=name)
            # Anyone with the address may download it, as in LibreTranslate, without a key.
            wishes = DocumentWishes(source=fields["source"], target=fields["target"], public=True)
            record = await self._documents.submit(upload, wishes, context)
        try:
            record = await self._finished(record, request, settings.max_timeout_s)
        except CancelledError:
            await self._documents.remove(record)
            raise
        except TimeoutError as error:
            await self._documents.remove(record)
            raise DeadlineExceededError(
                f"the file takes more than {settings.max_timeout_s:g} seconds; send it to "
                "/documents, which answers at once"
            ) from error
        if record.state == "failed":
            await self._documents.remove(record)
            raise RequestError(record.error)
        suffix = PurePath(output_name(record)).suffix
        url = own_address(request, settings.root_path, f"/download_file/{record.id}{suffix}")
        return json_response(TranslatedFile(translatedFileUrl=url))

    async def _finished(
        self, record: DocumentRecord, request: Request, timeout_s: float
    ) -> DocumentRecord:
        """Wait for the end of a document. Raises TimeoutError, and CancelledError if the client
        disconnects, because nobody else would know the URL."""
        finished = asyncio.create_task(self._documents.finished(record, timeout_s))
        departed = asyncio.create_task(_departed(request))
        try:
            await asyncio.wait((finished, departed), return_when=asyncio.FIRST_COMPLETED)
            if finished.done():
                return finished.result()
            raise CancelledError("the client left before its file was translated")
        finally:
            finished.cancel()
            departed.cancel()

    async def download(self, request: Request, _: RequestContext) -> Response:
        """Return a translated file."""
        record = await self._documents.find(PurePath(request.path_params["name"]).stem, "")
        return file_response(self._documents, record)


async def _departed(request: Request) -> None:
    """Wait until the client disconnects. Its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


LIBRETRANSLATE_FILES = Dialect(
    endpoints=_FileEndpoints,
    routes=(
        DialectRoute(
            "/translate_file",
            _FileEndpoints.translate,
            "translate_file",
            "Translate a file, as LibreTranslate does; answers when it is done",
            TranslatedFile,
            methods=("POST",),
            upload=("source", "target", "api_key"),
            errors=(*WORK, 403, 501),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/download_file/{name}",
            _FileEndpoints.download,
            "download_file",
            "A translated file",
            bytes,
            errors=(400, 404, 503),
            key=KeyRule.NONE,
        ),
    ),
)
"""The part of LibreTranslate's API that translates files."""
