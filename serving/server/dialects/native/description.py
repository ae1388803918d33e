"""The native dialect's part of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from serving.server.api.description import (
    REASONS,
    WORK,
    Description,
    add_forms,
    events,
    get,
    post,
    reference,
)
from serving.server.dialects.native.classification import ClassifyRequest, ClassifyResponse
from serving.server.dialects.native.wire import (
    Language,
    Limits,
    Models,
    Status,
    TranslateRequest,
    TranslateResponse,
)
from serving.server.http.wire import Error

_FORM = ("q", "source", "target", "format", "alternatives", "model", "timeout_s", "api_key")
_METRICS = {
    "operationId": "metrics",
    "summary": "What the server measures of itself, for Prometheus",
    "responses": {
        "200": {
            "description": REASONS[200],
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
}


def describe() -> Description:
    """Describe the native routes, those for operating the server included."""
    languages = {"type": "array", "items": reference(Language)}
    return Description(
        paths={
            "/translate": _translate_path(),
            "/languages": get("languages", "Languages and the models that read them", languages),
            "/classify": post(
                "classify",
                "Classes of texts, with their probabilities",
                ClassifyRequest,
                ClassifyResponse,
                WORK,
            ),
            "/models": get(
                "models", "What is known of each model, whatever its task", reference(Models)
            ),
            "/limits": get("limits", "Every limit of this server", reference(Limits), ()),
            "/livez": get("alive", "Whether the server runs", reference(Status), ()),
            "/readyz": get("ready", "Whether it can translate", reference(Status)),
            "/metrics": {"get": _METRICS},
            "/openapi.json": get("openapi", "This document", {"type": "object"}, ()),
        },
        requests=(TranslateRequest, ClassifyRequest),
        answers=(TranslateResponse, ClassifyResponse, Language, Models, Limits, Status, Error),
    )


def _translate_path() -> dict[str, Any]:
    """Describe `/translate`, which reads JSON or a form, and answers at once or as a stream."""
    translate = post(
        "translate",
        "Translate one text or several; requests that arrive together are decoded together",
        TranslateRequest,
        TranslateResponse,
        (*WORK, 403),
    )
    add_forms(translate, TranslateRequest, _FORM)
    translate["post"]["responses"]["200"]["content"]["text/event-stream"] = events(
        "With `stream`: events `partial` (`{index, text}`), at last `done` (a TranslateResponse) "
        "or `error` (an Error)"
    )
    return translate
