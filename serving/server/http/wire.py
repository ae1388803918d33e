"""Base classes, types and helpers that the bodies of all dialects share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import ServingError

JSON = "application/json"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of server-sent events: no proxy on the way may hold them back."""


_FLAGS: dict[object, bool] = {"true": True, "1": True, "false": False, "0": False}


def _flag(given: object) -> object:
    """Converts the forms of a boolean that clients write: 1, "1" or "true"."""
    text = str(given).lower() if isinstance(given, int | str) else ""
    return _FLAGS.get(text, given)


def _whole(given: object) -> object:
    """Converts the forms of a whole number that clients write: 2.0 or "2"."""
    if isinstance(given, str) and given.isdecimal() and len(given) < 10:
        return int(given)
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _with_nulls(schema: dict[str, Any]) -> None:
    """Make a schema say that an optional field may be null. The field's own keywords stay in place,
    because clients look there for the server's features."""
    for name, field in schema["properties"].items():
        if name in schema["required"]:
            continue
        if "type" in field:
            kinds = field["type"]
            field["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
        if "enum" in field:
            field["enum"] = [*field["enum"], None]
        if "anyOf" in field and {"type": "null"} not in field["anyOf"]:
            field["anyOf"] = [*field["anyOf"], {"type": "null"}]


Flag = Annotated[
    bool,
    BeforeValidator(_flag),
    WithJsonSchema({"enum": [True, False, 1, 0, "true", "false", "1", "0"]}),
]
"""A boolean, also as a number or a text."""
Count = Annotated[
    int,
    BeforeValidator(_whole),
    Field(ge=0),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]{1,9}$"}),
]
"""A number from 0, also as a text."""


class Wire(BaseModel):
    """Base class of all bodies: a value of another type is never converted.

    The validator of a body is built with the first such body. The OpenAPI document describes each
    field by the docstring below it.
    """

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)


class LenientRequest(Wire):
    """A request body in which null, or an empty language, counts as an omitted field, because some
    clients always send all fields."""

    model_config = ConfigDict(json_schema_extra=_with_nulls)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        return {
            name: value
            for name, value in fields.items()
            if (value is not None or name == "q")
            and not (value == "" and name in ("source", "target"))
        }


class DetectedLanguage(Wire):
    """The detected language of a text, and its confidence."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    """Confidence in percent."""
    language: str


def detected_language(language: str, confidence: float) -> DetectedLanguage:
    """A language and its confidence from 0 to 1, which is converted to percent."""
    return DetectedLanguage(language=language, confidence=round(100 * confidence, 1))


class Error(Wire):
    """The body of every answer that is not 2xx."""

    error: str
    """A description of the error for people."""
    code: str
    """The kind of error, for programs."""
    hint: str | None = None
    """Advice, such as the allowed values; omitted if `error` contains it."""


def utc(seconds: float) -> str:
    """A time, in seconds since 1970, in the form of bodies: `2026-11-28T09:30:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def own_address(request: Request, root_path: str, path: str) -> str:
    """The full URL of a path of this server, as the client of a request reaches it; a proxy may
    have put the server below `root_path`."""
    return f"{request.url.scheme}://{request.url.netloc}{root_path}{path}"


def json_response(
    answer: BaseModel | Sequence[BaseModel],
    *,
    status: int = HTTPStatus.OK,
    exclude_none: bool = False,
) -> Response:
    """A JSON response with a body, or a list of bodies; with `exclude_none`, without fields that
    are None."""
    if isinstance(answer, BaseModel):
        text = answer.model_dump_json(exclude_none=exclude_none)
    else:
        items = (item.model_dump_json(exclude_none=exclude_none) for item in answer)
        text = f"[{','.join(items)}]"
    return Response(text, status_code=status, media_type=JSON)


def error_response(error: ServingError) -> Response:
    """The answer to a refused request, for dialects without an error shape of their own."""
    body = Error(error=str(error), code=error.code, hint=error.hint)
    return json_response(body, status=error.status, exclude_none=True)
