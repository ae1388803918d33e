"""The answer to a refused request, in the shape of its dialect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from serving.errors import ServingError
from serving.server.api.dialect import Dialect
from serving.server.http.access_log import CONTEXT
from serving.server.http.wire import error_response

_MAX_MESSAGE = 500
"""The longest message in characters; messages may quote the request."""


class Refusal:
    """Turns errors into answers. The path of the request selects the dialect whose shape they
    have."""

    def __init__(self, dialects: Sequence[Dialect[Any]]) -> None:
        self._renderers = {
            path: dialect.render_error for dialect in dialects for path in dialect.error_paths
        }

    def __call__(self, scope: Scope, error: ServingError) -> Response:
        """The answer with its headers. The error is recorded for the access log and the metrics."""
        scope[CONTEXT].error = error.code
        error.args = (_shortened(str(error)),)
        error.hint = _shortened(error.hint) if error.hint else None
        response = self._render(scope["path"], error)
        if error.retry_after_s is not None:
            response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _render(self, path: str, error: ServingError) -> Response:
        beginnings = (beginning for beginning in self._renderers if path.startswith(beginning))
        longest = max(beginnings, key=len, default="")
        return self._renderers.get(longest, error_response)(error)


def _shortened(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + " ..."
