"""Builds DeepLX's answers: translations and errors."""

from __future__ import annotations

import time

from starlette.responses import Response

from serving.errors import ServingError
from serving.server.dialects.deeplx.wire import DeepLXError, DeepLXRequest, DeepLXTranslation
from serving.server.http.wire import json_response
from serving.server.work.translating.job import TextResult


def deeplx_translation(body: DeepLXRequest, result: TextResult) -> DeepLXTranslation:
    """The answer with the translation of a body's text. Its id is the time in milliseconds."""
    return DeepLXTranslation(
        id=time.time_ns() // 1_000_000,
        data=result.text,
        alternatives=[other.text for other in result.hypotheses[1:] if other.text != result.text],
        source_lang=result.source.upper(),
        target_lang=body.target_lang,
    )


def deeplx_error(error: ServingError) -> Response:
    """An error response in DeepLX's shape."""
    answer = DeepLXError(code=error.status, message=error.full_message)
    return json_response(answer, status=error.status)
