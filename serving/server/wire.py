"""What the answers of all dialects have in common."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel
from starlette.responses import Response

JSON = "application/json"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Of server-sent events: nothing on the way may hold them back."""


def json_response(
    answer: BaseModel | Sequence[BaseModel], *, exclude_none: bool = False
) -> Response:
    """An answer, or a list of them, as JSON; with `exclude_none` without what is not there."""
    if isinstance(answer, BaseModel):
        text = answer.model_dump_json(exclude_none=exclude_none)
    else:
        items = (item.model_dump_json(exclude_none=exclude_none) for item in answer)
        text = f"[{','.join(items)}]"
    return Response(text, media_type=JSON)
