"""What the answers of all dialects have in common."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from serving.errors import ServingError

JSON = "application/json"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Of server-sent events: nothing on the way may hold them back."""


class Wire(BaseModel):
    """What all bodies have in common: no value is taken for one of another type."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class Error(Wire):
    """Every answer that is not 2xx."""

    error: str
    """What is wrong, for people."""
    code: str
    """What kind of error it is, for programs."""
    hint: str | None = None
    """What may stand in the place of what is wrong; left out where `error` says it."""


def json_response(
    answer: BaseModel | Sequence[BaseModel],
    *,
    status: int = HTTPStatus.OK,
    exclude_none: bool = False,
) -> Response:
    """An answer, or a list of them, as JSON; with `exclude_none` without fields that are None."""
    if isinstance(answer, BaseModel):
        text = answer.model_dump_json(exclude_none=exclude_none)
    else:
        items = (item.model_dump_json(exclude_none=exclude_none) for item in answer)
        text = f"[{','.join(items)}]"
    return Response(text, status_code=status, media_type=JSON)


def error_response(error: ServingError) -> Response:
    """The answer to a refused request in the shape of the native dialect and of LibreTranslate."""
    body = Error(error=str(error), code=error.code, hint=error.hint)
    return json_response(body, status=error.status, exclude_none=True)
