"""The OpenAPI document, made from the classes of the bodies.

docs/openapi.json is a copy of it; `python -m serving.server.openapi > docs/openapi.json` writes it
anew.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from serving.server.dialects.deepl import wire as deepl_schemas
from serving.server.dialects.deepl.wire import DEEPL_STATUSES
from serving.server.dialects.libretranslate import wire as libretranslate_schemas
from serving.server.dialects.native import wire as schemas
from serving.server.dialects.openai import wire as openai_schemas

API_VERSION = "0.1.0"

_REF = "#/components/schemas/{model}"
_REASONS = {
    200: "Done",
    400: "The request says something that is not possible; the message says what",
    401: "An API key is needed, or the one sent is not known; only where the server has keys",
    403: "The API key in the body is not known, or, in DeepL's dialect, any key",
    404: "There is no model of that name",
    413: "A text, the list of texts or the body is over a limit of `/limits`",
    408: "The body did not arrive in time",
    415: "The body is declared as something else than the route reads, or not in UTF-8",
    429: "The client has asked for more than it may in a minute; only where there is a limit",
    456: "So many characters are not translated before the server is started anew",
    500: "The model failed",
    503: "The queue is full, or the server is starting or shutting down; try again later",
    504: "Not finished in time",
}
_WORK = (400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
_QUICK = (400, 401, 404, 408, 413, 415, 429, 503)
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_TRANSLATE_FORM = (
    "q",
    "source",
    "target",
    "format",
    "alternatives",
    "model",
    "timeout_s",
    "api_key",
)
_DEEPL_FORM = (
    *("text", "target_lang", "source_lang", "split_sentences", "formality", "tag_handling"),
    *("ignore_tags", "model_type", "preserve_formatting", "show_billed_characters", "context"),
)
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before another try",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_METRICS = {
    "operationId": "metrics",
    "summary": "What the server measures of itself, for Prometheus",
    "responses": {
        "200": {
            "description": _REASONS[200],
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
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
            "/metrics": {"get": _METRICS},
            "/openapi.json": _get("openapi", "This document", {"type": "object"}, ()),
            **_libretranslate_paths(),
            **_deepl_paths(),
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
        (*_WORK, 403),
    )
    _add_forms(translate, schemas.TranslateRequest, _TRANSLATE_FORM)
    translate["post"]["responses"]["200"]["content"]["text/event-stream"] = _events(
        "With `stream`: events `partial` (`{index, text}`), at last `done` (a TranslateResponse) "
        "or `error` (an Error)"
    )
    return translate


def _libretranslate_paths() -> dict[str, Any]:
    """LibreTranslate's routes besides those that it shares with the native dialect."""
    wire = libretranslate_schemas
    found = {"type": "array", "items": _reference(schemas.DetectedLanguage)}
    detect = _operation(
        "detect", "Languages that a text may be in", found, (*_QUICK, 403), schemas.Error
    )
    detect["requestBody"] = {"required": True, "content": _content(_reference(wire.DetectRequest))}
    _add_forms({"post": detect}, wire.DetectRequest, ("q", "api_key"))
    frontend = _reference(wire.FrontendSettings)
    return {
        "/detect": {"post": detect},
        "/frontend/settings": _get("frontend_settings", "What a page has to know", frontend),
        "/health": _get("health", "Whether it can translate", _reference(wire.Health)),
        "/spec": _get("spec", "This document", {"type": "object"}, ()),
    }


def _deepl_paths() -> dict[str, Any]:
    """DeepL's dialect, whose errors have its own shape."""
    wire, error = deepl_schemas, deepl_schemas.DeepLError
    translate = _post(
        "deepl_translate",
        "Translate one text or several, as DeepL does",
        wire.DeepLTranslateRequest,
        wire.DeepLTranslations,
        (*_deepl(_WORK), 456),
        error,
    )
    _add_forms(translate, wire.DeepLTranslateRequest, _DEEPL_FORM)
    items = {"type": "array", "items": _reference(wire.DeepLLanguage)}
    languages, usage = {}, {}
    for method in ("get", "post"):
        languages[method] = _operation(
            f"deepl_languages_{method}", "Languages read or written", items, _deepl(_QUICK), error
        )
        kind = _parameter("type", "query")
        kind["schema"]["enum"] = ["source", "target"]
        languages[method]["parameters"] = [kind]
        count = _reference(wire.DeepLUsage)
        usage[method] = _operation(
            f"deepl_usage_{method}", "Characters so far", count, _deepl(_QUICK), error
        )
    pairs = _reference(wire.DeepLGlossaryPairs)
    return {
        "/v2/translate": translate,
        "/v2/languages": languages,
        "/v2/usage": usage,
        "/v2/glossary-language-pairs": _get("glossary_pairs", "None", pairs, (403, 429), error),
    }


def _deepl(statuses: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(DEEPL_STATUSES.get(status, status) for status in statuses)


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
    completions["post"]["responses"]["200"]["content"]["text/event-stream"] = _events(
        "With `stream`: Completions, and [DONE] at the end"
    )
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
        libretranslate_schemas.DetectRequest,
        deepl_schemas.DeepLTranslateRequest,
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
        schemas.DetectedLanguage,
        libretranslate_schemas.FrontendSettings,
        libretranslate_schemas.Health,
        deepl_schemas.DeepLTranslations,
        deepl_schemas.DeepLLanguage,
        deepl_schemas.DeepLUsage,
        deepl_schemas.DeepLGlossaryPairs,
        deepl_schemas.DeepLError,
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


def _add_forms(path: dict[str, Any], request: type[BaseModel], names: tuple[str, ...]) -> None:
    """Say that the path reads forms too, with those fields of the request."""
    described = request.model_json_schema()
    properties = {name: _not_null(described["properties"][name]) for name in names}
    required = [name for name in described["required"] if name in names]
    schema = {"type": "object", "properties": properties, "required": required}
    path["post"]["requestBody"]["content"].update({form: {"schema": schema} for form in _FORMS})


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional field where it is there, as a form has no null."""
    return {
        name: [choice for choice in value if choice != {"type": "null"}]
        if name == "anyOf"
        else value
        for name, value in schema.items()
        if value is not None
    }


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
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY_AFTER
    return {"operationId": name, "summary": summary, "responses": responses}


def _events(data: str) -> dict[str, Any]:
    """What each server-sent event of an answer is."""
    properties = {"data": {"type": "string", "description": data}, "event": {"type": "string"}}
    return {"schema": {"type": "object", "properties": properties, "required": ["data"]}}


def _parameter(name: str, place: str) -> dict[str, Any]:
    required = place == "path"
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model.__name__)}


if __name__ == "__main__":
    sys.stdout.write(document())
