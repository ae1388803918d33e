"""The OpenAPI document, made from the classes of the bodies.

docs/openapi.json is a copy of it: `python -m serving.openapi > docs/openapi.json` writes it anew.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from serving import openai_schemas, schemas

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
_WORK = (400, 404, 413, 415, 500, 503, 504)
_QUICK = (400, 404, 413, 415, 503)
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
    languages = {"type": "array", "items": _reference(schemas.Language)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Macaron",
            "version": API_VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/translate": _translate_path(),
            "/languages": _get("languages", "Languages and the models that read them", languages),
            "/models": _get("models", "What is known of each model", _reference(schemas.Models)),
            "/limits": _get("limits", "Every limit of this server", _reference(schemas.Limits), ()),
            "/livez": _get("alive", "Whether the server runs", _reference(schemas.Status), ()),
            "/readyz": _get("ready", "Whether it can translate", _reference(schemas.Status)),
            "/openapi.json": _get("openapi", "This document", {"type": "object"}, ()),
            **_openai_paths(),
        },
        "components": {"schemas": _schemas()},
    }


def _translate_path() -> dict[str, Any]:
    """Both forms of the answer."""
    translate = _post(
        "translate",
        "Translate one text or several; requests that arrive together are decoded together",
        schemas.TranslateRequest,
        schemas.TranslateResponse,
        _WORK,
    )
    events = (
        "With `stream`: events `partial` (`{index, text}`), at last `done` (a TranslateResponse) "
        "or `error` (an Error)"
    )
    translate["post"]["responses"]["200"]["content"]["text/event-stream"] = {
        "schema": {"type": "string", "description": events}
    }
    return translate


def _openai_paths() -> dict[str, Any]:
    """OpenAI's dialect, whose errors have its own shape."""
    error = openai_schemas.OpenAIError
    completions = _post(
        "completions",
        "Go on from prompts; requests that arrive together are decoded together",
        openai_schemas.CompletionRequest,
        openai_schemas.Completion,
        _WORK,
        error,
    )
    completions["post"]["responses"]["200"]["content"]["text/event-stream"] = {
        "schema": {"type": "string", "description": "With `stream`: Completions as `data:` events"}
    }
    chat = _operation("chat", "Refused: there is no chat template", {}, (400, 503), error)
    del chat["responses"]["200"]
    models, card = openai_schemas.OpenAIModels, openai_schemas.OpenAIModel
    info = _reference(openai_schemas.TokenizerInfo)
    one_model = _get("model", "One language model", _reference(card), (404, 503), error)
    one_model["get"]["parameters"] = [_parameter("model", "path")]
    special = _get("tokenizer_info", "The special tokens", info, (404, 503), error)
    special["get"]["parameters"] = [_parameter("model", "query")]
    return {
        "/v1/models": _get("openai_models", "Language models", _reference(models), (503,), error),
        "/v1/models/{model}": one_model,
        "/v1/completions": completions,
        "/v1/chat/completions": {"post": chat},
        "/tokenizer_info": special,
        "/tokenize": _post(
            "tokenize",
            "Text to ids",
            openai_schemas.TokenizeRequest,
            openai_schemas.Tokens,
            _QUICK,
            error,
        ),
        "/detokenize": _post(
            "detokenize",
            "Ids to text",
            openai_schemas.DetokenizeRequest,
            openai_schemas.Detokenized,
            _QUICK,
            error,
        ),
    }


def _schemas() -> dict[str, Any]:
    requests: list[type[BaseModel]] = [
        schemas.TranslateRequest,
        openai_schemas.CompletionRequest,
        openai_schemas.TokenizeRequest,
        openai_schemas.DetokenizeRequest,
    ]
    answers: list[type[BaseModel]] = [
        schemas.TranslateResponse,
        schemas.Language,
        schemas.Models,
        schemas.Limits,
        schemas.Status,
        schemas.Error,
        openai_schemas.OpenAIModels,
        openai_schemas.OpenAIModel,
        openai_schemas.Completion,
        openai_schemas.TokenizerInfo,
        openai_schemas.Tokens,
        openai_schemas.Detokenized,
        openai_schemas.OpenAIError,
    ]
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(r, "validation") for r in requests]
    modes += [(answer, "serialization") for answer in answers]
    _, definitions = models_json_schema(modes, ref_template=_REF)
    found: dict[str, Any] = definitions["$defs"]
    return found


def _get(
    name: str,
    summary: str,
    schema: dict[str, Any],
    errors: tuple[int, ...] = (503,),
    error: type[BaseModel] = schemas.Error,
) -> dict[str, Any]:
    return {"get": _operation(name, summary, schema, errors, error)}


def _post(
    name: str,
    summary: str,
    request: type[BaseModel],
    answer: type[BaseModel],
    errors: tuple[int, ...],
    error: type[BaseModel] = schemas.Error,
) -> dict[str, Any]:
    operation = _operation(name, summary, _reference(answer), errors, error)
    operation["requestBody"] = {"required": True, "content": _content(_reference(request))}
    return {"post": operation}


def _operation(
    name: str,
    summary: str,
    schema: dict[str, Any],
    errors: tuple[int, ...],
    error: type[BaseModel],
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": _REASONS[200], "content": _content(schema)}}
    for status in errors:
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": _content(_reference(error)),
        }
        if status == 503:
            responses["503"]["headers"] = _RETRY_AFTER
    return {"operationId": name, "summary": summary, "responses": responses}


def _parameter(name: str, place: str) -> dict[str, Any]:
    required = place == "path"
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model.__name__)}


if __name__ == "__main__":
    sys.stdout.write(document())
