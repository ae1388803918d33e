"""Reading a body, JSON or form: limits while it arrives, media type, syntax, types."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import (
    CancelledError,
    MediaTypeError,
    RequestError,
    RequestTimeoutError,
    TooLongError,
)
from serving.server.http.access_log import CONTEXT, RequestContext
from serving.server.http.form import MULTIPART, URLENCODED, Fields, form_fields
from serving.server.http.settings import variable
from serving.server.http.wire import JSON

BodyT = TypeVar("BodyT", bound=BaseModel)

_MAX_DISCARD = 16 * 1024 * 1024
_VARIANT = re.compile(r"str|int|float|bool|list|dict|[A-Z].*|.*[\[(-].*")
"""Pydantic's names of union variants in an error path: no field is named like these."""


_WANTED = {"model_type": "an object", "none_required": "left out"}
"""Descriptions of expected types, by pydantic's error type, if its own message is about Python."""


class TimedBody:
    """ASGI middleware that raises RequestTimeoutError in the reader of a body that arrives too
    slowly, and notes in the request's context if its client leaves before the answer is sent."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app, self._timeout_s = app, timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context: RequestContext = scope[CONTEXT]
        end: float | None = asyncio.get_running_loop().time() + self._timeout_s

        async def receive_in_time() -> Message:
            nonlocal end
            if end is None:
                message = await receive()
            else:
                message = await self._in_time(receive, end)
            if not message.get("more_body", False):
                end = None
            if message["type"] == "http.disconnect" and not context.answered:
                context.left = True
            return message

        await self._app(scope, receive_in_time, send)

    async def _in_time(self, receive: Receive, end: float) -> Message:
        try:
            async with asyncio.timeout_at(end):
                return await receive()
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"the body must arrive within {self._timeout_s:g} seconds; send it faster"
            ) from error


class ByBody:
    """ASGI middleware that separates APIs with a common path: a POST of JSON is forwarded to the
    API whose required fields its body has."""

    def __init__(
        self, app: ASGIApp, shared: Mapping[str, Mapping[str, frozenset[str]]], max_bytes: int
    ) -> None:
        """`shared` maps a path to the alternative paths, each with the fields that identify its
        requests. Of a body of more than `max_bytes`, only the beginning is read."""
        self._app, self._shared, self._max_bytes = app, shared, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        others = self._shared.get(scope["path"]) if scope["type"] == "http" else None
        if not others or scope["method"] != "POST" or not self._may_wait(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        messages, failure = await self._arrived(receive)
        fields = _field_names(b"".join(message.get("body", b"") for message in messages), others)
        path = next((path for path, wanted in others.items() if wanted <= fields), None)
        if path is not None:
            # Changed in place: outer middleware reads the route from this scope.
            scope.update(path=path, raw_path=path.encode())
        messages.reverse()

        async def receive_again() -> Message:
            if messages:
                return messages.pop()
            if failure is not None:
                raise failure
            return await receive()

        await self._app(scope, receive_again, send)

    def _may_wait(self, headers: Headers) -> bool:
        """Whether to wait for the body. If its declared length is too large it is refused at once:
        a client that waits for the refusal before it sends more would otherwise wait in vain."""
        is_json = _media_type(headers.get("content-type", "")) == JSON
        return is_json and _declared_length(headers) <= self._max_bytes

    async def _arrived(self, receive: Receive) -> tuple[list[Message], RequestTimeoutError | None]:
        """The messages of a body up to its end, its limit or an error."""
        messages: list[Message] = []
        size, more = 0, True
        while more and size <= self._max_bytes:
            try:
                message = await receive()
            except RequestTimeoutError as error:
                return messages, error
            messages.append(message)
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        return messages, None


def _field_names(body: bytes, others: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Field names of a JSON object; empty if none of the identifying fields can be among them."""
    if not any(all(f'"{name}"'.encode() in body for name in names) for names in others.values()):
        return frozenset()
    try:
        return frozenset(_json_tree(body))
    except RequestError:
        return frozenset()  # the endpoint reports the error


async def read_json(request: Request, schema: type[BodyT], max_bytes: int) -> BodyT:
    """Parse the body as an instance of `schema`.

    Raises RequestError if the body is too large, is not declared as JSON, is not JSON, or has wrong
    types; CancelledError if the client disconnects.
    """
    body = await _checked(request, max_bytes, (JSON,))
    return _validated(lambda: schema.model_validate(_json_tree(body)))


async def read_fields(
    request: Request,
    schema: type[BodyT],
    max_bytes: int,
    clean: Callable[[str], str] = str,
    *,
    query_too: bool = False,
) -> BodyT:
    """Parse the body as `read_json` does; it may also be a form (urlencoded or multipart) or
    missing.

    Fields of a form and of the query are texts; `clean` prepares them and `schema` converts them.
    With a JSON body the query is ignored; with `query_too` it adds what the body lacks, which may
    then be empty. A GET whose body has an unsupported media type is answered by its query.
    """
    content_type = request.headers.get("content-type", "")
    try:
        body = await _checked(request, max_bytes, (JSON, URLENCODED, MULTIPART, ""))
    except MediaTypeError:
        if request.method != "GET":
            raise
        body = b""
    if request.method == "GET" and not (body and content_type):
        body, content_type = b"", ""  # some clients declare a type without a body
    if _media_type(content_type) == JSON:
        tree = _json_tree(body) if body or not query_too else {}
        if query_too:
            added = _cleaned(form_fields(request.scope["query_string"], b"", ""), clean)
            tree |= {name: added[name] for name in added if tree.get(name) is None}
        return _validated(lambda: schema.model_validate(tree))
    if body and not content_type:
        raise _wrong_media_type("", (JSON, URLENCODED, MULTIPART))
    fields = _cleaned(form_fields(request.scope["query_string"], body, content_type), clean)
    return _validated(lambda: schema.model_validate(fields, strict=False))


def _cleaned(fields: Fields, clean: Callable[[str], str]) -> Fields:
    """The fields with texts that `clean` has prepared."""

    def prepared(value: str | Fields) -> str | Fields:
        return clean(value) if isinstance(value, str) else _cleaned(value, clean)

    return {
        name: clean(value) if isinstance(value, str) else [prepared(item) for item in value]
        for name, value in fields.items()
    }


async def _checked(request: Request, max_bytes: int, media_types: Sequence[str]) -> bytes:
    """The bytes of a body with one of the media types, within the size limit."""
    try:
        _check_headers(request, max_bytes, media_types)
    except RequestError:
        await _discard(request)
        raise
    return await _read(request, max_bytes)


def _json_tree(body: bytes) -> dict[str, Any]:
    try:
        tree = pydantic_core.from_json(body.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"the body must be valid JSON in UTF-8: {error}") from error
    if not isinstance(tree, dict):
        raise RequestError(f"the body must be a JSON object, got {_kind(tree)}")
    return tree


def _validated(validate: Callable[[], BodyT]) -> BodyT:
    """The result of `validate`; raises RequestError in place of pydantic's error."""
    try:
        return validate()
    except ValidationError as error:
        raise _described_error(error.errors()) from error


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_headers(request: Request, max_bytes: int, media_types: Sequence[str]) -> None:
    declared = request.headers.get("content-type", "")
    if _media_type(declared) not in media_types:
        raise _wrong_media_type(declared, media_types)
    parameters = (part.strip().lower() for part in declared.split(";")[1:])
    charset = next((p.partition("=")[2] for p in parameters if p.startswith("charset=")), "utf-8")
    if charset.strip("\"' ") not in ("utf-8", "utf8"):
        raise MediaTypeError(f"charset must be utf-8, got {charset!r}")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise MediaTypeError(f"Content-Encoding must be identity, got {encoding!r}")
    if _declared_length(request.headers) > max_bytes:
        raise _too_large(max_bytes)


def _wrong_media_type(declared: str, media_types: Sequence[str]) -> MediaTypeError:
    allowed = " or ".join(filter(None, media_types))
    return MediaTypeError(f"Content-Type must be {allowed}, got {declared or 'none'!r}")


def _declared_length(headers: Headers) -> int:
    length = headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else 0


async def _read(request: Request, max_bytes: int) -> bytes:
    # The declared length may be wrong, and a chunked body has none, so the bytes are counted.
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
    """Read the rest of a refused body, at most some megabytes.

    A connection that is closed with unread data is reset. A client that reads its answer only after
    sending everything would then never see it.
    """
    if _declared_length(request.headers) > _MAX_DISCARD:
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


def _described_error(errors: Sequence[Any]) -> RequestError:
    """Convert pydantic's errors into one error: the deepest counts. If a value may have several
    types, each has errors; those types count that fit the longest beginning of the value."""
    fields = _fields(max(errors, key=lambda error: len(_path(error))))
    firsts: dict[tuple[str, ...], Any] = {}
    for error in errors:
        if _fields(error) == fields:
            firsts.setdefault(tuple(part for part in error["loc"] if isinstance(part, str)), error)
    farthest = max(map(_numbers, firsts.values()))
    wrong = [error for error in firsts.values() if _numbers(error) == farthest]
    first = wrong[0]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _path(first))
    name = name.removeprefix(".")
    if first["type"] == "missing":
        # Some clients compare these words for a missing field.
        alone = len(_path(first)) == 1
        missing = f"Invalid request: missing {name} parameter" if alone else None
        return RequestError(missing or f"{name} is missing", parameter=name)
    if first["input"] == [] and any(error["type"] == "too_short" for error in wrong):
        reason = f"{name} must have at least one item, got an empty list"
        return RequestError(reason, parameter=name)
    wanted = " or ".join(
        dict.fromkeys(
            _WANTED.get(error["type"]) or error["msg"].removeprefix("Input should be ")
            for error in wrong
        )
    )
    got = _kind(first["input"])
    return RequestError(f"{name} must be {wanted}, got {got}", parameter=name)


def _path(error: Mapping[str, Any]) -> list[str | int]:
    """Path of a pydantic error within the body, without the variants of unions."""
    return [part for part in error["loc"] if isinstance(part, int) or not _VARIANT.fullmatch(part)]


def _fields(error: Mapping[str, Any]) -> list[str]:
    return [part for part in _path(error) if isinstance(part, str)]


def _numbers(error: Mapping[str, Any]) -> list[int]:
    """Places in the lists on the path of an error."""
    return [part for part in error["loc"] if isinstance(part, int)]


def _kind(value: object) -> str:
    """A value as messages show it: numbers and short texts as they are, other values by type."""
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
