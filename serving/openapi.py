"""The OpenAPI document, made from the classes in serving.schemas.

docs/openapi.json is a copy of it: `python -m serving.openapi > docs/openapi.json` writes it anew.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from serving import schemas

API_VERSION = "0.1.0"

_REF = "#/components/schemas/{model}"
_REASONS = {
    200: "Done",
    400: "The request says something that is not possible; the message says what",
    404: "There is no model of that name",
    413: "A text, the list of texts or the body is over a limit of `/limits`",
    415: "The body is not declared as application/json in UTF-8",
    500: "The model failed",
    503: "The queue is full, or the server is starting or shutting down; try again later",
    504: "Not finished in time",
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before another try",
        "schema": {"type": "integer", "minimum": 1},
    }
}


@functools.cache
def document() -> str:
    """The document as JSON text."""
    return json.dumps(_tree(), indent=1, ensure_ascii=False) + "\n"


def _tree() -> dict[str, Any]:
    translate = _operation(
        "translate",
        "Translate one text or several; requests that arrive together are decoded together",
        _reference(schemas.TranslateResponse),
        (400, 404, 413, 415, 500, 503, 504),
    )
    translate["requestBody"] = {
        "required": True,
        "content": _content(_reference(schemas.TranslateRequest)),
    }
    languages = {"type": "array", "items": _reference(schemas.Language)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Macaron",
            "version": API_VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/translate": {"post": translate},
            "/languages": _get("languages", "Languages and the models that read them", languages),
            "/models": _get("models", "What is known of each model", _reference(schemas.Models)),
            "/limits": _get("limits", "Every limit of this server", _reference(schemas.Limits), ()),
            "/livez": _get("alive", "Whether the server runs", _reference(schemas.Status), ()),
            "/readyz": _get("ready", "Whether it can translate", _reference(schemas.Status)),
            "/openapi.json": _get("openapi", "This document", {"type": "object"}, ()),
        },
        "components": {"schemas": _schemas()},
    }


def _schemas() -> dict[str, Any]:
    answers: list[type[BaseModel]] = [
        schemas.TranslateResponse,
        schemas.Language,
        schemas.Models,
        schemas.Limits,
        schemas.Status,
        schemas.Error,
    ]
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(schemas.TranslateRequest, "validation")]
    modes += [(answer, "serialization") for answer in answers]
    _, definitions = models_json_schema(modes, ref_template=_REF)
    found: dict[str, Any] = definitions["$defs"]
    return found


def _get(
    name: str, summary: str, schema: dict[str, Any], errors: tuple[int, ...] = (503,)
) -> dict[str, Any]:
    return {"get": _operation(name, summary, schema, errors)}


def _operation(
    name: str, summary: str, schema: dict[str, Any], errors: tuple[int, ...]
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": _REASONS[200], "content": _content(schema)}}
    for status in errors:
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": _content(_reference(schemas.Error)),
        }
        if status == 503:
            responses["503"]["headers"] = _RETRY_AFTER
    return {"operationId": name, "summary": summary, "responses": responses}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model.__name__)}


if __name__ == "__main__":
    sys.stdout.write(document())
