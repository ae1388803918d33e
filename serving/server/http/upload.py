"""Reads a form with a file, which is written to disk as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from serving.errors import CancelledError, MediaTypeError, RequestError, TooLongError
from serving.server.http.form import MULTIPART, Fields
from serving.server.http.settings import variable

_IN_MEMORY = 1024 * 1024
"""Number of bytes of a file that are held in memory; larger files are on disk."""
_MAX_FIELDS = 100
_MAX_FIELD_BYTES = 100_000


@dataclass(frozen=True)
class Upload:
    """An uploaded file, and the fields beside it."""

    name: str
    """The file's name as the client gives it; empty if it gives none."""
    file: IO[bytes]
    """The file, open at its beginning; closing it deletes it from disk."""
    fields: Fields


async def read_upload(
    request: Request, max_bytes: int, *, noun: str = "document", setting: str = "max_document_bytes"
) -> Upload:
    """Read the form of a request with one file, in the field `file`; the caller closes the file.

    Error messages call the file `noun`, and name the setting of its limit. Raises MediaTypeError if
    it is not a multipart form, TooLongError for more than `max_bytes`, RequestError if the form is
    broken or has no file, and CancelledError if the client disconnects.
    """
    declared = request.headers.get("content-type", "")
    if not declared.lower().startswith(MULTIPART):
        raise MediaTypeError(
            f"Content-Type must be {MULTIPART}, with the {noun} in the field 'file', got "
            f"{declared or 'none'!r}"
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes, noun, setting)
    parser = MultiPartParser(
        request.headers,
        _bounded(request, max_bytes, noun, setting),
        max_files=1,
        max_fields=_MAX_FIELDS,
        max_part_size=_MAX_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RequestError(f"the body must be a multipart form: {error.message}") from error
    except ClientDisconnect as error:
        raise CancelledError(f"the client left while sending its {noun}") from error
    found = form.get("file")
    if not isinstance(found, UploadFile):
        await form.close()
        raise RequestError(f"a {noun} is missing; send it in the field 'file'", parameter="file")
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    return Upload(found.filename or "", found.file, {**fields})


async def read_file(request: Request, max_bytes: int, setting: str) -> IO[bytes]:
    """Read the body of a request into a file, open at its beginning; closing it deletes it from
    disk.

    Raises TooLongError for more than `max_bytes`, which `setting` sets, and CancelledError if the
    client disconnects.
    """
    file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
    try:
        async for part in _bounded(request, max_bytes, "file", setting):
            await run_in_threadpool(file.write, part)
    except ClientDisconnect as error:
        file.close()
        raise CancelledError("the client left while sending its file") from error
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


async def _bounded(
    request: Request, max_bytes: int, noun: str, setting: str
) -> AsyncGenerator[bytes]:
    # The declared length may be wrong, and a chunked body has none, so the bytes are counted.
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes, noun, setting)
        yield part


def _too_large(max_bytes: int, noun: str, setting: str) -> TooLongError:
    return TooLongError(
        f"a {noun} must have at most {max_bytes} bytes ({variable(setting)}); divide it",
        parameter="file",
    )
