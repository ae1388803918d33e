"""Reading a JSON body: size limit while it arrives, media type, syntax, types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from serving.errors import CancelledError, MediaTypeError, RequestError, TooLongError
from serving.settings import variable

BodyT = TypeVar("BodyT", bound=BaseModel)

JSON = "application/json"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Of server-sent events: nothing on the way may hold them back."""

_MAX_DISCARD = 16 * 1024 * 1024


async def read_json(request: Request, schema: type[BodyT], max_bytes: int) -> BodyT:
    """The body as an instance of `schema`.

    Raises RequestError where it is too large, is not declared as JSON, is not JSON, or has other
    types; CancelledError where the client goes away.
    """
    try:
        _check_headers(request, max_bytes)
    except RequestError:
        await _discard(request)
        raise
    body = await _read(request, max_bytes)
    try:
        tree = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"the body must be valid JSON in UTF-8: {error}") from error
    if not isinstance(tree, dict):
        raise RequestError(f"the body must be a JSON object, got {_kind(tree)}")
    try:
        return schema.model_validate(tree)
    except ValidationError as error:
        refused = RequestError(_describe(error.errors()))
        refused.parameter = str(error.errors()[0]["loc"][0])
        raise refused from error


def _check_headers(request: Request, max_bytes: int) -> None:
    declared = request.headers.get("content-type", "")
    media_type, *parameters = (part.strip().lower() for part in declared.split(";"))
    if media_type != JSON:
        raise MediaTypeError(f"Content-Type must be {JSON}, got {declared or 'none'!r}")
    charset = next((p.partition("=")[2] for p in parameters if p.startswith("charset=")), "utf-8")
    if charset.strip("\"' ") not in ("utf-8", "utf8"):
        raise MediaTypeError(f"charset must be utf-8, got {charset!r}")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise MediaTypeError(f"Content-Encoding must be identity, got {encoding!r}")
    if _declared_length(request) > max_bytes:
        raise _too_large(max_bytes)


def _declared_length(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else 0


async def _read(request: Request, max_bytes: int) -> bytes:
    # What the client declared may be wrong, and a chunked body declares nothing: count.
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CancelledError("the client left while sending its request")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > max_bytes:
            if more:
                await _discard(request)
            raise _too_large(max_bytes)
        if not more:
            return bytes(body)


async def _discard(request: Request) -> None:
    """Read what is left of a refused body, if it is no more than some megabytes.

    A connection that is closed while data waits in it is reset, and a client that reads its answer
    only after it has sent everything would never see it.
    """
    if _declared_length(request) > _MAX_DISCARD:
        return
    discarded, more = 0, True
    while more and discarded <= _MAX_DISCARD:
        message = await request.receive()
        discarded += len(message.get("body", b""))
        more = message.get("more_body", False)


def _too_large(max_bytes: int) -> TooLongError:
    return TooLongError(
        f"the body must have at most {max_bytes} bytes ({variable('max_body_bytes')}); send fewer "
        "texts in a request"
    )


def _describe(errors: Sequence[Any]) -> str:
    """The error that lies deepest; several stand there where a value may be of several types."""
    depth = max(len(error["loc"]) for error in errors)
    deepest = [error for error in errors if len(error["loc"]) == depth]
    first = deepest[0]
    # Names of the variants of a union stand in the path too; they are no part of the body.
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for number, part in enumerate(first["loc"])
        if number == 0 or isinstance(part, int)
    )
    name = path.removeprefix(".")
    if first["type"] == "missing":
        return f"{name} is missing"
    same = [error for error in deepest if error["loc"][0] == first["loc"][0]]
    wanted = " or ".join(
        dict.fromkeys(error["msg"].removeprefix("Input should be ") for error in same)
    )
    return f"{name} must be {wanted}, got {_kind(first['input'])}"


def _kind(value: object) -> str:
    """A value for an error message: numbers and short strings as they are, else the type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str) and len(value) > 40:
        return "a string"
    text = repr(value)
    return text if len(text) <= 50 else "a number"
