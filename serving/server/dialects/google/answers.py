"""Builds the answers of Google Translate's API: translations, languages, errors."""

from __future__ import annotations

from starlette.responses import Response

from serving.errors import ServingError
from serving.server.dialects.google.wire import (
    GoogleDetection,
    GoogleError,
    GoogleErrorDetail,
    GoogleErrorItem,
    GoogleTranslateAnswer,
    GoogleTranslateRequest,
    GoogleTranslation,
    GoogleTranslations,
)
from serving.server.http.wire import json_response
from serving.server.work.translating.job import JobResult

_UNDETERMINED = "und"
"""The answer for a text without a language, such as a number."""
_WORDS = {
    400: ("INVALID_ARGUMENT", "invalid"),
    401: ("UNAUTHENTICATED", "required"),
    404: ("NOT_FOUND", "notFound"),
    405: ("UNIMPLEMENTED", "httpMethodNotAllowed"),
    408: ("DEADLINE_EXCEEDED", "requestTimeout"),
    413: ("INVALID_ARGUMENT", "uploadTooLarge"),
    415: ("INVALID_ARGUMENT", "unsupportedMediaType"),
    429: ("RESOURCE_EXHAUSTED", "rateLimitExceeded"),
    503: ("UNAVAILABLE", "backendError"),
    504: ("DEADLINE_EXCEEDED", "backendError"),
}
"""Google's codes for HTTP statuses, of its newer and older APIs."""
_OTHER = ("INTERNAL", "internalError")


def translated(body: GoogleTranslateRequest, result: JobResult) -> GoogleTranslateAnswer:
    """The translations of all texts."""
    return GoogleTranslateAnswer(
        data=GoogleTranslations(
            translations=[
                GoogleTranslation(
                    translatedText=text.text,
                    detectedSourceLanguage=None if text.confidence is None else text.source,
                    model=body.model,
                )
                for text in result.translations
            ]
        )
    )


def detection(found: list[tuple[str, float]]) -> GoogleDetection:
    """The most probable language of a text."""
    language, confidence = (found or [(_UNDETERMINED, 0.0)])[0]
    return GoogleDetection(
        language=language, confidence=round(confidence, 4), isReliable=confidence > 0.5
    )


def google_error(error: ServingError) -> Response:
    """An error response in Google's shape."""
    status, reason = _WORDS.get(error.status, _OTHER)
    message = error.full_message
    detail = GoogleErrorDetail(
        code=error.status,
        message=message,
        errors=[GoogleErrorItem(message=message, reason=reason)],
        status=status,
    )
    return json_response(GoogleError(error=detail), status=error.status)
