"""Detections and errors in Google's shape."""

from __future__ import annotations

import json

import pytest

from serving.errors import (
    DecodingError,
    NotReadyError,
    QuotaExceededError,
    RateLimitedError,
    ServingError,
    UnknownLanguageError,
)
from serving.server.dialects.google.answers import detection, google_error
from serving.server.dialects.google.wire import GoogleDetection


@pytest.mark.parametrize(
    ("error", "code", "status", "reason"),
    [
        (RateLimitedError("slower"), 429, "RESOURCE_EXHAUSTED", "rateLimitExceeded"),
        (NotReadyError("later"), 503, "UNAVAILABLE", "backendError"),
        (DecodingError("failed"), 500, "INTERNAL", "internalError"),
        (QuotaExceededError("enough"), 429, "RESOURCE_EXHAUSTED", "rateLimitExceeded"),
    ],
)
def test_statuses_have_googles_words(
    error: ServingError, code: int, status: str, reason: str
) -> None:
    answer = google_error(error)
    assert answer.status_code == code
    message = str(error)
    assert json.loads(bytes(answer.body)) == {
        "error": {
            "code": code,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}],
            "status": status,
        }
    }


def test_what_there_is_stands_in_the_message() -> None:
    error = UnknownLanguageError("xx is not supported", hint="target must be one of ['en']")
    answer = json.loads(bytes(google_error(error).body))["error"]
    assert answer["message"] == "xx is not supported; target must be one of ['en']"


def test_a_detection_is_the_first_language_and_whether_it_is_sure() -> None:
    found = [("de", 0.51239), ("nl", 0.3)]
    wanted = GoogleDetection(language="de", confidence=0.5124, isReliable=True)
    assert detection(found) == wanted
    assert not detection([("de", 0.5)]).isReliable
    assert detection([]) == GoogleDetection(language="und", confidence=0, isReliable=False)
